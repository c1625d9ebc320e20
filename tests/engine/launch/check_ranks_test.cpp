// Ranks that do not meet: missing, late, of another job, with other settings; and what they are
// told.
#include <gmock/gmock.h>

#include "engine/comm/store/tcp_store.h"
#include "engine/launch/rendezvous.h"
#include "tests/engine/launch/join_ranks.h"
#include "tests/support/expect_error.h"

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;

TEST(JoinJob, SeveralHostsWithoutATokenAreToldToSetOne) {
  testing::expect_error(ErrorCode::Usage, "[LOCKSTEP_TOKEN]", [] {
    join_job(
        {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"MASTER_ADDR", "10.0.0.1"}});
  });
}

TEST(JoinJob, MissingRanksAreNamedOnEveryRankThatCame) {
  const int port = free_port();
  JoinOptions options;
  options.timeout_seconds = 0.3;
  for (const JoinResult& result :
       join_all({rank_by_hand(0, 4, port), rank_by_hand(2, 4, port)}, options)) {
    EXPECT_THAT(result.error, HasSubstr("2 of 4 ranks came within 0.3 s, missing: rank 1, 3"));
  }
}

TEST(CheckRanks, ARankThatCameAndStandsStillIsNamed) {
  comm::MemoryStore store;
  store.set("join/rank/1", "");
  RankEnvironment rank;
  rank.world_size = 2;
  testing::expect_error(ErrorCode::Timeout,
                        "[join] all 2 ranks came within 0.02 s, but one of them does not go on",
                        [&] { check_ranks(store, rank, {.timeout_seconds = 0.02}); });
}

TEST(CheckRanks, WhoWaitsLongIsToldForWhomAndAgainWhenFewerAreMissing) {
  comm::MemoryStore store;
  std::vector<std::vector<int>> told;
  RankEnvironment rank;
  rank.world_size = 3;
  JoinOptions options;
  options.waiting.after_seconds = 0.01;
  options.waiting.tell = [&](const std::vector<int>& missing) {
    told.push_back(missing);
    store.set(told.size() == 1 ? "join/rank/1" : "join/complete", "");
  };
  check_ranks(store, rank, options);
  EXPECT_EQ(told, (std::vector<std::vector<int>>{{1, 2}, {2}}));
}

TEST(JoinJob, WhoWaitsForRankZeroIsToldBeforeTheTimeIsOver) {
  const int port = free_port();
  std::vector<int> missing;
  std::optional<std::thread> late;
  JoinOptions options;
  options.waiting.after_seconds = 0.01;
  options.waiting.tell = [&](const std::vector<int>& ranks) {
    missing = ranks;
    if (!late) late.emplace([&] { join_job(rank_by_hand(0, 2, port)); });
  };
  { const Job job = join_job(rank_by_hand(1, 2, port), options); }
  ASSERT_TRUE(late);
  late->join();
  EXPECT_EQ(missing, std::vector<int>{0});
}

TEST(JoinJob, AMissingRankZeroIsNamed) {
  JoinOptions options;
  options.timeout_seconds = 0.1;
  testing::expect_error(ErrorCode::Timeout, "rank 1 waited 0.1 s for rank 0",
                        [&] { join_job(rank_by_hand(1, 2, free_port()), options); });
}

// Ranks 0, 1, 1 and 2 of a job of three, at once: one of the twins is refused.
TEST(JoinJob, OfTwoRanksWithTheSameNumberTheLateOneAloneIsRefused) {
  const int port = free_port();
  const auto results = join_all(
      {rank_by_hand(0, 3, port), rank_by_hand(1, 3, port), rank_by_hand(2, 3, port),
       rank_by_hand(1, 3, port)},
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
          others.push_back(rank_by_hand(rank, world_size, port));
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
  expect_all_joined(join_all({rank_by_hand(0, 2, port), rank_by_hand(1, 2, port)}, {}, meet_twice));
}

// RANK=1 for two of three: those that wait for rank 2 hear why it may be missing.
TEST(JoinJob, AMissingRankIsNamedTogetherWithTheProcessThatWasRefused) {
  const int port = free_port();
  JoinOptions options;
  options.timeout_seconds = 0.5;
  const auto results = join_all(
      {rank_by_hand(0, 3, port), rank_by_hand(1, 3, port), rank_by_hand(1, 3, port)}, options);
  EXPECT_THAT(results[0].error, HasSubstr("2 of 3 ranks came within 0.5 s, missing: rank 2"));
  EXPECT_THAT(results[0].error, HasSubstr("came as rank 1 and was refused: rank 1 of this job"));
}

TEST(JoinJob, DifferentWorldSizesAreNamedOnEveryRank) {
  const int port = free_port();
  for (const JoinResult& result :
       join_all({rank_by_hand(0, 3, port), rank_by_hand(1, 4, port)}, {})) {
    EXPECT_THAT(result.error, HasSubstr("the ranks differ in WORLD_SIZE: "));
    EXPECT_THAT(result.error, HasSubstr("3 (rank 0)"));
    EXPECT_THAT(result.error, HasSubstr("4 (rank 1)"));
  }
}

std::vector<JoinResult> join_with(const std::vector<std::vector<Setting>>& settings) {
  const int port = free_port();
  std::vector<JoinResult> results(settings.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < settings.size(); ++rank) {
    threads.emplace_back([&, rank] {
      JoinOptions options;
      options.settings = settings[rank];
      const auto size = static_cast<int>(settings.size());
      results[rank] = join_all({rank_by_hand(static_cast<int>(rank), size, port)}, options)[0];
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
  for (const JoinResult& result : join_with({common, other})) {
    EXPECT_THAT(result.error, HasSubstr("[join] the ranks differ in lr: 0."));
    EXPECT_THAT(result.error, HasSubstr("0.1 (rank 0)"));
    EXPECT_THAT(result.error, HasSubstr("0.2 (rank 1)"));
  }
}

TEST(JoinJob, RanksWithOtherKindsOfSettingsAreToldBothToo) {
  for (const JoinResult& result :
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
  std::vector<JoinResult> results;
  std::thread zero([&] { results = join_all({rank("0", kToken)}, options); });
  stranger.join();
  expect_all_joined(join_all({rank("1", kToken)}, options));
  zero.join();
  expect_all_joined(results);
}

}  // namespace
}  // namespace lockstep::launch
