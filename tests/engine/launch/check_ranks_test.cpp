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

}  // namespace
}  // namespace lockstep::launch
