// Ranks that meet: by hand, by files, over networks. Those that do not: connect_failure_test.cpp.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include <mutex>

#include "engine/comm/store/socket.h"
#include "engine/launch/job_token.h"
#include "engine/launch/private_file.h"
#include "tests/engine/launch/join_ranks.h"
#include "tests/support/expect_error.h"
#include "tests/support/ipv6.h"

namespace lockstep::launch {
namespace {

using testing::TempFolder;

TEST(JoinJob, AloneNeedsNobody) {
  const Job job = join_job({});
  job.store()->set("key", "value");
  EXPECT_EQ(job.store()->try_get("key"), "value");
  EXPECT_EQ(job.rank().world_size, 1);
}

TEST(JoinJob, RanksByHandShareATokenThatNobodyGaveThemAndLeaveNoFile) {
  const TempFolder folder;
  const int port = free_port();
  std::vector<Environment> environments;
  for (int rank = 0; rank < 4; ++rank) {
    environments.push_back(rank_by_hand(rank, 4, port, folder));
  }
  std::mutex mutex;
  std::vector<std::string> tokens;
  expect_all_joined(join_all(environments, {}, [&](const Job& job) {
    job.store()->add("sum", job.rank().rank);
    job.store()->barrier("work", job.rank().rank, 4, runtime::deadline_after(30));
    EXPECT_EQ(job.store()->try_get("sum"), "6");
    const std::lock_guard lock(mutex);
    tokens.push_back(job.token());
  }));
  EXPECT_EQ(tokens, std::vector<std::string>(4, tokens.at(0)));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(JoinJob, ATokenFileOfTheUsersIsReadByAllAndLeftAsItIs) {
  const TempFolder folder;
  const auto path = folder / "secret";
  testing::write_text(path, make_token() + "\n");
  ::chmod(path.c_str(), 0600);
  const std::string content = testing::read_text(path);
  std::vector<Environment> environments;
  const int port = free_port();
  for (int rank = 0; rank < 2; ++rank) {
    environments.push_back(rank_by_hand(rank, 2, port, folder));
    environments.back()["LOCKSTEP_TOKEN_FILE"] = path.string();
  }
  expect_all_joined(
      join_all(environments, {}, [&](const Job& job) { EXPECT_EQ(job.token() + "\n", content); }));
  EXPECT_EQ(testing::read_text(path), content);
}

TEST(JoinJob, TokenFromTheEnvironmentAndTcpInitMethod) {
  JoinOptions options;
  options.init_method = "tcp://127.0.0.1:" + std::to_string(free_port());
  Environment zero = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCKSTEP_TOKEN", kToken}};
  Environment one = zero;
  one["RANK"] = "1";
  expect_all_joined(join_all({zero, one}, options));
}

TEST(JoinJob, Ipv6Loopback) {
  if (!lockstep::testing::has_ipv6()) GTEST_SKIP() << "no IPv6 here";
  JoinOptions options;
  options.init_method = "tcp://[::1]:" + std::to_string(free_port());
  Environment zero = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCKSTEP_TOKEN", kToken}};
  Environment one = zero;
  one["RANK"] = "1";
  expect_all_joined(join_all({zero, one}, options));
}

TEST(JoinJob, FileInitMethodNeedsNoPort) {
  const TempFolder folder;
  JoinOptions options;
  options.init_method = "file://" + (folder / "meet").string();
  expect_all_joined(join_all({{{"RANK", "0"}, {"WORLD_SIZE", "3"}},
                              {{"RANK", "1"}, {"WORLD_SIZE", "3"}},
                              {{"RANK", "2"}, {"WORLD_SIZE", "3"}}},
                             options, [&](const Job& job) {
                               if (job.rank().rank != 0) return;
                               EXPECT_TRUE(std::filesystem::is_empty(folder.path()))
                                   << "the file goes when all have joined";
                             }));
}

TEST(JoinJob, AMeetingPlaceTakesTheNameOfNoFileOfTheUsers) {
  const TempFolder folder;
  const auto path = folder / "results.csv";
  testing::write_text(path, "a day's work");
  JoinOptions options;
  options.init_method = "file://" + path.string();
  testing::expect_error(ErrorCode::Io, "results.csv already, and it is no meeting place", [&] {
    join_job({{"RANK", "0"}, {"WORLD_SIZE", "2"}}, options);
  });
  EXPECT_EQ(testing::read_text(path), "a day's work");
}

// As a job leaves it whose rank 0 was killed: nobody listens at the port that it names.
TEST(JoinJob, AStaleMeetingFileDoesNotKeepANewJobFromStarting) {
  const TempFolder folder;
  const MeetingFile stale(folder / "meet", "127.0.0.1", free_port(), make_token());
  JoinOptions options;
  options.timeout_seconds = 10;
  options.init_method = "file://" + (folder / "meet").string();
  expect_all_joined(join_all(
      {{{"RANK", "1"}, {"WORLD_SIZE", "2"}}, {{"RANK", "0"}, {"WORLD_SIZE", "2"}}}, options));
}

TEST(JoinJob, CountsLocalRanksWhereTheEnvironmentDoesNotSay) {
  const std::string port = std::to_string(free_port());
  std::vector<Environment> environments;
  for (const char* rank : {"0", "1"}) {
    environments.push_back({{"RANK", rank},
                            {"WORLD_SIZE", "2"},
                            {"LOCAL_RANK", rank},
                            {"MASTER_ADDR", "0.0.0.0"},  // this host, by a name that hides it
                            {"MASTER_PORT", port},
                            {"LOCKSTEP_TOKEN", kToken}});
  }
  const std::vector<JoinResult> results = join_all(environments, {});
  expect_all_joined(results);
  for (const JoinResult& result : results) {
    ASSERT_TRUE(result.rank);
    EXPECT_EQ(result.rank->local_world_size, 2);
    EXPECT_EQ(result.rank->node_rank, 0);
  }
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

// A program that meets its others twice: the second job is not taken for what is left of the first.
TEST(JoinJob, ARankThatComesAgainWaitsForTheNextJob) {
  const TempFolder folder;
  const int port = free_port();
  for (int round = 0; round < 3; ++round) {
    expect_all_joined(join_all({rank_by_hand(0, 2, port, folder), rank_by_hand(1, 2, port, folder)},
                               {}, [&](const Job& job) { job.store()->add("round", 1); }));
  }
}

}  // namespace
}  // namespace lockstep::launch
