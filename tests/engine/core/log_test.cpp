#include "engine/core/log.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/core/thread_context.h"

namespace lockstep {
namespace {

template <typename Function>
std::string stderr_of(Function&& function) {
  ::testing::internal::CaptureStderr();
  function();
  return ::testing::internal::GetCapturedStderr();
}

TEST(Log, ALoneProcessNamesNoRank) {
  EXPECT_EQ(stderr_of([] { log_info("{} rows", 30); }), "30 rows\n");
}

TEST(Log, ARankAmongSeveralIsNamedFirst) {
  const ThreadContextScope rank({.rank = 2, .world_size = 4});
  EXPECT_EQ(stderr_of([] { log_warning("slow"); }), "[rank 2/4] warning: slow\n");
}

TEST(Log, LinesBelowTheLevelAreDropped) {
  EXPECT_EQ(stderr_of([] { log_debug("detail"); }), "");
}

TEST(LogDeathTest, AnUnknownLevelIsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto log_loudly = [] {
    ::setenv("LOCKSTEP_LOG", "loud", 1);
    log_info("progress");
    std::exit(0);
  };
  EXPECT_EXIT(log_loudly(), ::testing::ExitedWithCode(0),
              "LOCKSTEP_LOG is 'loud', expected debug, info or warning\nprogress");
}

}  // namespace
}  // namespace lockstep
