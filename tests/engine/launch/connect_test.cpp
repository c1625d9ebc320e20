// Ranks that meet, as threads with environments of their own; and those that do not.
#include "engine/launch/connect.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "engine/comm/store/memory_store.h"
#include "engine/comm/store/tcp_store_client.h"
#include "engine/comm/store/tcp_store_server.h"
#include "engine/core/error.h"
#include "engine/launch/job_token.h"
#include "engine/launch/port.h"
#include "engine/launch/roll_call.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;

int free_port() {
  return PortReservation(0, PortReservation::Scope::loopback).port();
}

// Ranks by hand on this host; the token file is in `folder`.
Environment rank_by_hand(int rank, int world_size, int port, const TempFolder& folder) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(world_size)},
          {"MASTER_PORT", std::to_string(port)},
          {"XDG_RUNTIME_DIR", folder.path().string()}};
}

// Joins with all environments at once. Ranks that joined stay until all have tried.
struct Result {
  std::optional<RankEnvironment> rank;
  std::string error;
};
std::vector<Result> join_all(const std::vector<Environment>& environments,
                             const JoinOptions& options,
                             const std::function<void(const Job&)>& work = {}) {
  std::vector<Result> results(environments.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < environments.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        const Job job = join_job(environments[i], options);
        results[i].rank = job.rank();
        if (work) work(job);
      } catch (const std::exception& error) {
        results[i].error = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

void expect_all_joined(const std::vector<Result>& results) {
  for (const Result& result : results) EXPECT_EQ(result.error, "");
}

TEST(JoinJob, AloneNeedsNobody) {
  const Job job = join_job({});
  job.store()->set("key", "value");
  EXPECT_EQ(job.store()->try_get("key"), "value");
  EXPECT_EQ(job.rank().world_size, 1);
}

TEST(JoinJob, RanksByHandShareATokenThroughAPrivateFile) {
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
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "the file goes with the job";
}

TEST(JoinJob, AStaleTokenFileDoesNotKeepANewJobFromStarting) {
  const TempFolder folder;
  const int port = free_port();
  const PrivateFile stale(default_token_file({{"XDG_RUNTIME_DIR", folder.path().string()}}, port),
                          make_token());
  expect_all_joined(
      join_all({rank_by_hand(1, 2, port, folder), rank_by_hand(0, 2, port, folder)}, {}));
}

TEST(JoinJob, TokenFromTheEnvironmentAndTcpInitMethod) {
  JoinOptions options;
  options.init_method = "tcp://127.0.0.1:" + std::to_string(free_port());
  Environment zero = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCKSTEP_TOKEN", "secret"}};
  Environment one = zero;
  one["RANK"] = "1";
  expect_all_joined(join_all({zero, one}, options));
}

TEST(JoinJob, Ipv6Loopback) {
  JoinOptions options;
  options.init_method = "tcp://[::1]:" + std::to_string(free_port());
  Environment zero = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCKSTEP_TOKEN", "secret"}};
  Environment one = zero;
  one["RANK"] = "1";
  const std::vector<Result> results = join_all({zero, one}, options);
  if (results[0].error.find("::1") != std::string::npos) GTEST_SKIP() << "no IPv6 here";
  expect_all_joined(results);
}

TEST(JoinJob, FileInitMethodNeedsNoPort) {
  const TempFolder folder;
  JoinOptions options;
  options.init_method = "file://" + (folder / "meet").string();
  expect_all_joined(join_all({{{"RANK", "0"}, {"WORLD_SIZE", "3"}},
                              {{"RANK", "1"}, {"WORLD_SIZE", "3"}},
                              {{"RANK", "2"}, {"WORLD_SIZE", "3"}}},
                             options));
}

// As a job leaves it whose rank 0 was killed: nobody listens at the port that it names.
TEST(JoinJob, AStaleMeetingFileDoesNotKeepANewJobFromStarting) {
  const TempFolder folder;
  const PrivateFile stale(folder / "meet", "127.0.0.1 " + std::to_string(free_port()) + " old\n");
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
                            {"LOCKSTEP_TOKEN", "secret"}});
  }
  const std::vector<Result> results = join_all(environments, {});
  expect_all_joined(results);
  for (const Result& result : results) {
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
                       {"LOCKSTEP_TOKEN", "secret"}};
  };
  const auto expect_reachable = [&](const Job& job) { EXPECT_EQ(job.address(), address); };
  expect_all_joined(
      join_all({environment("0", "127.0.1.1"), environment("1", address)}, {}, expect_reachable));
}

TEST(JoinJob, SeveralHostsWithoutATokenAreToldToSetOne) {
  testing::expect_error(ErrorCode::Usage, "[LOCKSTEP_TOKEN]", [] {
    join_job(
        {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"MASTER_ADDR", "10.0.0.1"}});
  });
}

TEST(JoinJob, MissingRanksAreNamedOnEveryRankThatCame) {
  const TempFolder folder;
  const int port = free_port();
  JoinOptions options;
  options.timeout_seconds = 0.3;
  for (const Result& result :
       join_all({rank_by_hand(0, 4, port, folder), rank_by_hand(2, 4, port, folder)}, options)) {
    EXPECT_THAT(result.error, HasSubstr("2 of 4 ranks came within 0.3 s, missing: rank 1, 3"));
  }
}

TEST(CallRoll, ARankThatCameAndStandsStillIsNamed) {
  comm::MemoryStore store;
  store.set("join/rank/1", "");
  RankEnvironment rank;
  rank.world_size = 2;
  testing::expect_error(ErrorCode::Timeout,
                        "[join] all 2 ranks came within 0.02 s, but one of them does not go on",
                        [&] { call_roll(store, rank, 0.02); });
}

TEST(CallRoll, WhoWaitsLongIsToldForWhomAndAgainWhenFewerAreMissing) {
  comm::MemoryStore store;
  std::vector<std::vector<int>> told;
  RankEnvironment rank;
  rank.world_size = 3;
  WaitingNotice notice;
  notice.after_seconds = 0.01;
  notice.tell = [&](const std::vector<int>& missing) {
    told.push_back(missing);
    store.set(told.size() == 1 ? "join/rank/1" : "join/complete", "");
  };
  call_roll(store, rank, 30, notice);
  EXPECT_EQ(told, (std::vector<std::vector<int>>{{1, 2}, {2}}));
}

TEST(JoinJob, WhoIsMissingIsToldBeforeTheTimeIsOver) {
  const TempFolder folder;
  const int port = free_port();
  std::vector<int> missing;
  std::optional<std::thread> late;
  JoinOptions options;
  options.waiting.after_seconds = 0.01;
  options.waiting.tell = [&](const std::vector<int>& ranks) {
    missing = ranks;
    if (!late) late.emplace([&] { join_job(rank_by_hand(1, 2, port, folder)); });
  };
  { const Job job = join_job(rank_by_hand(0, 2, port, folder), options); }
  ASSERT_TRUE(late);
  late->join();
  EXPECT_EQ(missing, std::vector<int>{1});
}

TEST(JoinJob, WhoWaitsForRankZeroIsToldTooWhereverTheTokenIs) {
  for (const char* token : {"", "secret"}) {
    const TempFolder folder;
    const int port = free_port();
    const auto environment = [&](int rank) {
      Environment by_hand = rank_by_hand(rank, 2, port, folder);
      by_hand["LOCKSTEP_TOKEN"] = token;
      return by_hand;
    };
    std::vector<int> missing;
    std::optional<std::thread> late;
    JoinOptions options;
    options.waiting.after_seconds = 0.01;
    options.waiting.tell = [&](const std::vector<int>& ranks) {
      missing = ranks;
      if (!late) late.emplace([&] { join_job(environment(0)); });
    };
    { const Job job = join_job(environment(1), options); }
    ASSERT_TRUE(late);
    late->join();
    EXPECT_EQ(missing, std::vector<int>{0});
  }
}

TEST(JoinJob, AMissingRankZeroIsNamed) {
  const TempFolder folder;
  JoinOptions options;
  options.timeout_seconds = 0.1;
  Environment environment = rank_by_hand(1, 2, free_port(), folder);
  testing::expect_error(ErrorCode::Timeout, "rank 1 waited 0.1 s for rank 0",
                        [&] { join_job(environment, options); });
  environment["LOCKSTEP_TOKEN"] = "secret";
  testing::expect_error(ErrorCode::Timeout, "rank 1 waited 0.1 s for rank 0",
                        [&] { join_job(environment, options); });
}

// Ranks 0, 1, 1 and 2 of a job of three, at once: one of the twins is refused.
TEST(JoinJob, OfTwoRanksWithTheSameNumberTheLateOneAloneIsRefused) {
  const TempFolder folder;
  const int port = free_port();
  const auto results = join_all(
      {rank_by_hand(0, 3, port, folder), rank_by_hand(1, 3, port, folder),
       rank_by_hand(2, 3, port, folder), rank_by_hand(1, 3, port, folder)},
      {}, [](const Job& job) { job.store()->get(comm::kRefusedKey, runtime::deadline_after(30)); });
  EXPECT_EQ(results[0].error, "");
  EXPECT_EQ(results[2].error, "");
  const std::string& refused = results[1].error.empty() ? results[3].error : results[1].error;
  EXPECT_EQ(results[1].error + results[3].error, refused);
  EXPECT_THAT(refused, HasSubstr("[join] rank 1 of this job is taken by process"));
  EXPECT_THAT(refused, HasSubstr("is another job using port " + std::to_string(port)));
}

// A second job of the same user on the same port, of this size and of a larger one.
TEST(JoinJob, AJobThatRunsGoesOnWhenAnotherOneOfItsUserComes) {
  const TempFolder folder;
  const int port = free_port();
  const auto meet_twice = [&](const Job& job) {
    const auto barrier = [&] {
      job.store()->barrier("work", job.rank().rank, 2, runtime::deadline_after(30));
    };
    barrier();
    if (job.rank().rank == 0) {
      for (const int world_size : {2, 4}) {
        std::vector<Environment> others;
        for (int rank = 0; rank < world_size; ++rank) {
          others.push_back(rank_by_hand(rank, world_size, port, folder));
        }
        const auto results = join_all(others, {});
        EXPECT_THAT(results[0].error, HasSubstr("is in use by another program"));
        EXPECT_THAT(results[1].error, HasSubstr("rank 1 of this job is taken by process"));
        if (world_size == 2) continue;
        EXPECT_THAT(results[3].error,
                    HasSubstr("all 2 ranks of this job have come, and rank 3 is none of them"));
      }
    }
    barrier();
  };
  expect_all_joined(join_all({rank_by_hand(0, 2, port, folder), rank_by_hand(1, 2, port, folder)},
                             {}, meet_twice));
}

// RANK=1 for two of three: those that wait for rank 2 hear why it may be missing.
TEST(JoinJob, AMissingRankIsNamedTogetherWithTheProcessThatWasRefused) {
  const TempFolder folder;
  const int port = free_port();
  JoinOptions options;
  options.timeout_seconds = 0.5;
  const auto results = join_all({rank_by_hand(0, 3, port, folder), rank_by_hand(1, 3, port, folder),
                                 rank_by_hand(1, 3, port, folder)},
                                options);
  EXPECT_THAT(results[0].error, HasSubstr("2 of 3 ranks came within 0.5 s, missing: rank 2"));
  EXPECT_THAT(results[0].error, HasSubstr("came as rank 1 and was refused: rank 1 of this job"));
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

TEST(JoinJob, DifferentWorldSizesAreNamedOnEveryRank) {
  const TempFolder folder;
  const int port = free_port();
  for (const Result& result :
       join_all({rank_by_hand(0, 3, port, folder), rank_by_hand(1, 4, port, folder)}, {})) {
    EXPECT_THAT(result.error, HasSubstr("different world sizes"));
    EXPECT_THAT(result.error, HasSubstr("3 (rank 0)"));
    EXPECT_THAT(result.error, HasSubstr("4 (rank 1)"));
  }
}

TEST(JoinJob, AWrongTokenIsRefusedAndTheOthersGoOn) {
  const std::string port = std::to_string(free_port());
  const auto rank = [&](const char* number, const char* token) {
    return Environment{
        {"RANK", number}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", port}, {"LOCKSTEP_TOKEN", token}};
  };
  JoinOptions options;
  options.timeout_seconds = 20;
  std::thread stranger([&] { EXPECT_THROW(join_job(rank("1", "wrong"), options), Error); });
  std::vector<Result> results;
  std::thread zero([&] { results = join_all({rank("0", "right")}, options); });
  stranger.join();
  expect_all_joined(join_all({rank("1", "right")}, options));
  zero.join();
  expect_all_joined(results);
}

TEST(JoinJob, APortInUseIsNamedAndTheTokenFileOfItsOwnerIsLeftAlone) {
  const TempFolder folder;
  comm::TcpStoreServerOptions other;
  other.token = "another job's";
  const comm::TcpStoreServer server(other);
  const auto path =
      default_token_file({{"XDG_RUNTIME_DIR", folder.path().string()}}, server.port());
  const PrivateFile file(path, other.token);
  testing::expect_error(ErrorCode::Comm, std::to_string(server.port()),
                        [&] { join_job(rank_by_hand(0, 2, server.port(), folder)); });
  EXPECT_EQ(read_private_file(path), other.token);
}

}  // namespace
}  // namespace lockstep::launch
