// The token, and ranks that meet as threads with environments of their own: by hand and over
// networks. Ranks that are missing, late or of another job: tests/faults.
#include "engine/launch/rendezvous.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "engine/comm/store/socket.h"
#include "tests/support/expect_error.h"
#include "tests/support/ipv6.h"

namespace lockstep::launch {
namespace {

using ::testing::Each;
using testing::expect_error;
using ::testing::HasSubstr;

std::string free_port() {
  return std::to_string(PortReservation(0, PortReservation::Scope::loopback).port());
}

// Ranks by hand on this host, with further variables.
std::vector<Environment> ranks_by_hand(int world_size, const Environment& more = {}) {
  const std::string port = free_port();
  std::vector<Environment> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    ranks.push_back({{"RANK", std::to_string(rank)},
                     {"LOCAL_RANK", std::to_string(rank)},
                     {"WORLD_SIZE", std::to_string(world_size)},
                     {"MASTER_PORT", port}});
    for (const auto& [name, value] : more) ranks.back()[name] = value;
  }
  return ranks;
}

// Joins with all environments at once, and returns each rank's error, or "".
std::vector<std::string> errors_of(
    const std::vector<Environment>& environments, const std::function<void(const Job&)>& work = {},
    const std::function<JoinOptions(std::size_t rank)>& options_of = [](std::size_t) {
      return JoinOptions{};
    }) {
  std::vector<std::string> errors(environments.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < environments.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        const Job job = join_job(environments[i], options_of(i));
        if (work) work(job);
      } catch (const std::exception& error) {
        errors[i] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

TEST(JobToken, IsTheVariablesAndIsRefusedIfItCanBeGuessed) {
  EXPECT_EQ(find_token({}), std::nullopt);
  EXPECT_EQ(find_token({{"LOCKSTEP_TOKEN", "of sixteen chars"}}), "of sixteen chars");
  expect_error(ErrorCode::Usage,
               "[LOCKSTEP_TOKEN] a job's token needs 16 to 256 bytes, so that it cannot be "
               "guessed, found 15",
               [] {
                 find_token({{"LOCKSTEP_TOKEN", "of fifteen char"}});
               });
}

TEST(JobToken, IsNeededOnSeveralHosts) {
  expect_error(ErrorCode::Usage, "[LOCKSTEP_TOKEN]", [] {
    join_job(
        {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"MASTER_ADDR", "10.0.0.1"}});
  });
}

TEST(JoinJob, AloneNeedsNobody) {
  const Job job = join_job({});
  job.store()->set("key", "value");
  EXPECT_EQ(job.store()->try_get("key"), "value");
  EXPECT_EQ(job.rank().world_size, 1);
}

TEST(JoinJob, RanksByHandNeedNoTokenOnTheLoopback) {
  const auto errors = errors_of(ranks_by_hand(4), [&](const Job& job) {
    job.store()->add("sum", job.rank().rank);
    job.store()->barrier("work", job.rank().rank, 4, 30);
    EXPECT_EQ(job.store()->try_get("sum"), "6");
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(JoinJob, RanksMeetOnTheLoopbackOfIpv6) {
  if (!lockstep::testing::has_ipv6()) GTEST_SKIP() << "no IPv6 here";
  EXPECT_THAT(errors_of(ranks_by_hand(2, {{"MASTER_ADDR", "::1"}})), Each(""));
}

TEST(JoinJob, TheFirstSettingThatDiffersIsNamedOnEveryRank) {
  const auto settings_of = [](std::size_t rank) {
    JoinOptions options;
    options.settings = {{"model", "mlp:4-2"}, {"lr", rank == 0 ? "0.1" : "0.2"}};
    options.settings.push_back({"seed", rank == 0 ? "1" : "2"});
    return options;
  };
  EXPECT_THAT(errors_of(ranks_by_hand(2), {}, settings_of),
              Each(HasSubstr("[join] the ranks differ in lr: 0.1 (rank 0) and 0.2 (rank 1)")));
}

// RFC 6761 reserves this name: no host has it.
TEST(JoinJob, AMasterAddressThatDoesNotExistIsSaidToBeOfNoUseOnOneHost) {
  ::testing::internal::CaptureStderr();
  const auto errors =
      errors_of(ranks_by_hand(2, {{"MASTER_ADDR", "nowhere.invalid"}, {"LOCAL_WORLD_SIZE", "2"}}));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("MASTER_ADDR=nowhere.invalid is not a host"));
  EXPECT_THAT(errors, Each(""));
}

// An IPv4 address of this host that is not the loopback's; empty where it has none.
std::string address_on_a_network() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string found;
  for (const ifaddrs* one = all; one != nullptr && found.empty(); one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN] = {};
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr, text,
              sizeof text);
    if (!is_loopback(text)) found = text;
  }
  freeifaddrs(all);
  return found;
}

class JoinJobOverANetwork : public ::testing::Test {
 protected:
  void SetUp() override {
    if (address_.empty()) GTEST_SKIP() << "this host has no address but the loopback's";
  }
  // Two ranks, as if each had a host of its own.
  std::vector<Environment> two_hosts() const {
    return ranks_by_hand(2, {{"LOCAL_RANK", "0"},
                             {"LOCAL_WORLD_SIZE", "1"},
                             {"MASTER_ADDR", address_},
                             {"LOCKSTEP_TOKEN", "a token of this test"}});
  }
  const std::string address_ = address_on_a_network();
};

// As where a host's own name is 127.0.1.1 to itself, as in Debian's /etc/hosts.
TEST_F(JoinJobOverANetwork, RanksThatCameByTheLoopbackAreReachedWhereTheOthersReachedRankZero) {
  std::vector<Environment> ranks = two_hosts();
  ranks[0]["MASTER_ADDR"] = "127.1";  // a name of the loopback that is no plain address of it
  const auto errors = errors_of(ranks, [&](const Job& job) { EXPECT_EQ(job.address(), address_); });
  EXPECT_THAT(errors, Each(""));
}

TEST_F(JoinJobOverANetwork, RankZeroListensWhereItWasNamedAndNowhereElse) {
  const std::vector<Environment> ranks = two_hosts();
  const auto port = static_cast<std::uint16_t>(std::stoi(ranks[0].at("MASTER_PORT")));
  const auto errors = errors_of(ranks, [&](const Job&) {
    expect_error(ErrorCode::Timeout, "Connection refused",
                 [&] { comm::connect_to("127.0.0.1", port, runtime::deadline_after(0)); });
  });
  EXPECT_THAT(errors, Each(""));
}

}  // namespace
}  // namespace lockstep::launch
