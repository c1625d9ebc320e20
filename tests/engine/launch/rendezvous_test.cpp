// The token, and ranks that meet: by hand and over networks. Those that do not:
// check_ranks_test.cpp.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include "engine/comm/store/socket.h"
#include "engine/launch/rendezvous.h"
#include "tests/engine/launch/join_ranks.h"
#include "tests/support/expect_error.h"
#include "tests/support/ipv6.h"

namespace lockstep::launch {
namespace {

TEST(JobToken, IsTheVariablesAndIsRefusedIfItCanBeGuessed) {
  EXPECT_EQ(find_token({}), std::nullopt);
  EXPECT_EQ(find_token({{"LOCKSTEP_TOKEN", "of sixteen chars"}}), "of sixteen chars");
  testing::expect_error(ErrorCode::Usage,
                        "[LOCKSTEP_TOKEN] a job's token needs 16 to 256 bytes, so that it "
                        "cannot be guessed, found 15",
                        [] {
                          find_token({{"LOCKSTEP_TOKEN", "of fifteen char"}});
                        });
}

TEST(JoinJob, AloneNeedsNobody) {
  const Job job = join_job({});
  job.store()->set("key", "value");
  EXPECT_EQ(job.store()->try_get("key"), "value");
  EXPECT_EQ(job.rank().world_size, 1);
}

TEST(JoinJob, RanksByHandNeedNoTokenOnTheLoopback) {
  const int port = free_port();
  std::vector<Environment> environments;
  for (int rank = 0; rank < 4; ++rank) environments.push_back(rank_by_hand(rank, 4, port));
  expect_all_joined(join_all(environments, {}, [&](const Job& job) {
    job.store()->add("sum", job.rank().rank);
    job.store()->barrier("work", job.rank().rank, 4, 30);
    EXPECT_EQ(job.store()->try_get("sum"), "6");
  }));
}

TEST(JoinJob, RanksMeetOnTheLoopbackOfIpv6) {
  if (!lockstep::testing::has_ipv6()) GTEST_SKIP() << "no IPv6 here";
  const int port = free_port();
  std::vector<Environment> environments{rank_by_hand(0, 2, port), rank_by_hand(1, 2, port)};
  for (Environment& environment : environments) environment["MASTER_ADDR"] = "::1";
  expect_all_joined(join_all(environments, {}));
}

// RFC 6761 reserves this name: no host has it.
TEST(JoinJob, AMasterAddressThatDoesNotExistIsSaidToBeOfNoUseOnOneHost) {
  const int port = free_port();
  std::vector<Environment> environments{rank_by_hand(0, 2, port), rank_by_hand(1, 2, port)};
  for (Environment& environment : environments) {
    environment["MASTER_ADDR"] = "nowhere.invalid";
    environment["LOCAL_RANK"] = environment["RANK"];
    environment["LOCAL_WORLD_SIZE"] = "2";
  }
  ::testing::internal::CaptureStderr();
  expect_all_joined(join_all(environments, {}));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("MASTER_ADDR=nowhere.invalid is not a host"));
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

// As where a host's own name is 127.0.1.1 to itself, as in Debian's /etc/hosts.
TEST(JoinJob, RanksThatCameByTheLoopbackAreReachedWhereTheOthersReachedRankZero) {
  const std::string address = address_on_a_network();
  if (address.empty()) GTEST_SKIP() << "this host has no address but the loopback's";
  const std::string port = std::to_string(free_port());
  const auto environment = [&](const char* rank, const std::string& master) {
    return Environment{{"RANK", rank},
                       {"WORLD_SIZE", "2"},
                       {"LOCAL_RANK", "0"},
                       {"LOCAL_WORLD_SIZE", "1"},
                       {"MASTER_ADDR", master},
                       {"MASTER_PORT", port},
                       {"LOCKSTEP_TOKEN", kToken}};
  };
  const auto expect_reachable = [&](const Job& job) { EXPECT_EQ(job.address(), address); };
  // A name of this host's loopback that is no plain address of it.
  expect_all_joined(
      join_all({environment("0", "127.1"), environment("1", address)}, {}, expect_reachable));
}

TEST(JoinJob, RankZeroListensWhereItWasNamedAndNowhereElse) {
  const std::string address = address_on_a_network();
  if (address.empty()) GTEST_SKIP() << "this host has no address but the loopback's";
  const int port = free_port();
  const auto environment = [&](const char* rank) {
    return Environment{{"RANK", rank},
                       {"WORLD_SIZE", "2"},
                       {"LOCAL_RANK", rank},
                       {"MASTER_ADDR", address},
                       {"MASTER_PORT", std::to_string(port)},
                       {"LOCKSTEP_TOKEN", kToken}};
  };
  expect_all_joined(join_all({environment("0"), environment("1")}, {}, [&](const Job&) {
    testing::expect_error(ErrorCode::Timeout, "Connection refused", [&] {
      comm::connect_to("127.0.0.1", static_cast<std::uint16_t>(port), runtime::deadline_after(0));
    });
  }));
}

}  // namespace
}  // namespace lockstep::launch
