// Ranks that do not meet: missing, late, of another job, with other settings; and what they are
// told.
#include <gmock/gmock.h>

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

TEST(JoinJob, AMissingRankIsNamedByAll) {
  const int port = free_port();
  JoinOptions options;
  options.timeout_seconds = 0.5;
  const auto results = join_all({rank_by_hand(0, 3, port), rank_by_hand(1, 3, port)}, options);
  for (const JoinResult& result : results) {
    EXPECT_THAT(result.error, HasSubstr("[join] 2 of 3 ranks came within 0.5 s, missing: rank 2; "
                                        "start them too, or correct WORLD_SIZE"));
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

}  // namespace
}  // namespace lockstep::launch
