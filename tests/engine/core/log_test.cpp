#include "engine/core/log.h"

#include <gtest/gtest.h>

#include "engine/core/thread_context.h"

namespace lockstep {
namespace {

// Puts the level back that the other tests expect.
class LevelScope {
 public:
  explicit LevelScope(LogLevel level) : saved_(log_level()) { set_log_level(level); }
  ~LevelScope() { set_log_level(saved_); }
  LevelScope(const LevelScope&) = delete;
  LevelScope& operator=(const LevelScope&) = delete;

 private:
  LogLevel saved_;
};

template <typename Function>
std::string stderr_of(Function&& function) {
  ::testing::internal::CaptureStderr();
  function();
  return ::testing::internal::GetCapturedStderr();
}

TEST(Log, ALoneProcessNamesNoRank) {
  const LevelScope level(LogLevel::info);
  EXPECT_EQ(stderr_of([] { log_info("{} rows", 30); }), "30 rows\n");
}

TEST(Log, ARankAmongSeveralIsNamedFirst) {
  const LevelScope level(LogLevel::info);
  const ThreadContextScope rank({.rank = 2, .world_size = 4});
  EXPECT_EQ(stderr_of([] { log_warning("slow"); }), "[rank 2/4] warning: slow\n");
  EXPECT_EQ(stderr_of([] { log_line(LogLevel::error, "lost"); }), "[rank 2/4] error: lost\n");
}

TEST(Log, LinesBelowTheLevelAreDropped) {
  const LevelScope level(LogLevel::warning);
  EXPECT_EQ(stderr_of([] {
              log_debug("detail");
              log_info("progress");
              log_warning("careful");
              log_line(LogLevel::error, "failed");
            }),
            "warning: careful\nerror: failed\n");
}

}  // namespace
}  // namespace lockstep
