// Ranks that meet, as threads with environments of their own; and those that do not.
#include "engine/launch/connect.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "engine/comm/store/memory_store.h"
#include "engine/comm/store/socket.h"
#include "engine/comm/store/tcp_store_client.h"
#include "engine/comm/store/tcp_store_server.h"
#include "engine/core/error.h"
#include "engine/launch/job_token.h"
#include "engine/launch/port.h"
#include "engine/launch/private_file.h"
#include "engine/launch/roll_call.h"
#include "tests/support/expect_error.h"
#include "tests/support/ipv6.h"
#include "tests/support/temp_folder.h"

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;

constexpr const char* kToken = "a token of this test";

int free_port() {
  return PortReservation(0, PortReservation::Scope::loopback).port();
}

// Ranks by hand on this host; files that they made would be in `folder`.
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

TEST(JoinJob, AShortTokenIsRefusedByName) {
  testing::expect_error(
      ErrorCode::Usage, "[LOCKSTEP_TOKEN] a job's token has 16 ... 256 bytes", [] {
        join_job({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCKSTEP_TOKEN", "secret"}});
      });
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
  for (const char* token : {"", kToken}) {
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
  environment["LOCKSTEP_TOKEN"] = kToken;
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

std::vector<Result> join_with(const std::vector<std::vector<Setting>>& settings) {
  const TempFolder folder;
  const int port = free_port();
  std::vector<Result> results(settings.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < settings.size(); ++rank) {
    threads.emplace_back([&, rank] {
      JoinOptions options;
      options.settings = settings[rank];
      const auto size = static_cast<int>(settings.size());
      results[rank] =
          join_all({rank_by_hand(static_cast<int>(rank), size, port, folder)}, options)[0];
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST(JoinJob, TheFirstSettingThatDiffersIsNamedOnEveryRank) {
  const std::vector<Setting> common{{"model", "mlp:4-2"}, {"lr", "0.1"}, {"seed", "1"}};
  expect_all_joined(join_with({common, common, common}));
  std::vector<Setting> other = common;
  other[1].value = "0.2";
  other[2].value = "2";
  for (const Result& result : join_with({common, other})) {
    EXPECT_THAT(result.error, HasSubstr("[join] the ranks differ in lr: 0."));
    EXPECT_THAT(result.error, HasSubstr("0.1 (rank 0)"));
    EXPECT_THAT(result.error, HasSubstr("0.2 (rank 1)"));
  }
}

TEST(JoinJob, RanksWithOtherKindsOfSettingsAreToldBothToo) {
  for (const Result& result :
       join_with({{{"command", "train"}, {"lr", "1"}}, {{"command", "train"}}})) {
    EXPECT_THAT(result.error, HasSubstr("the ranks differ in what they do: "));
    EXPECT_THAT(result.error, HasSubstr("lr=1 (rank 0)"));
    EXPECT_THAT(result.error, HasSubstr("nothing (rank 1)"));
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
  std::thread stranger(
      [&] { EXPECT_THROW(join_job(rank("1", "another one, just as long"), options), Error); });
  std::vector<Result> results;
  std::thread zero([&] { results = join_all({rank("0", kToken)}, options); });
  stranger.join();
  expect_all_joined(join_all({rank("1", kToken)}, options));
  zero.join();
  expect_all_joined(results);
}

TEST(JoinJob, APortInUseIsNamed) {
  const TempFolder folder;
  comm::TcpStoreServerOptions other;
  other.token = "another job's token";
  const comm::TcpStoreServer server(other);
  testing::expect_error(ErrorCode::Comm, std::to_string(server.port()),
                        [&] { join_job(rank_by_hand(0, 2, server.port(), folder)); });
}

}  // namespace
}  // namespace lockstep::launch
