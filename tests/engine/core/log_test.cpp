#include "engine/core/log.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

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

TEST(Log, LinesOfThreadsAreNotMixed) {
  const LevelScope level(LogLevel::info);
  constexpr int kThreads = 4;
  constexpr int kLines = 50;
  const std::string text = stderr_of([] {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kThreads; ++rank) {
      threads.emplace_back([rank] {
        const ThreadContextScope scope({.rank = rank, .world_size = kThreads});
        for (int i = 0; i < kLines; ++i) log_info("abcdefghijklmnopqrstuvwxyz");
      });
    }
  });
  int whole_lines = 0;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = text.find('\n', begin);
    ASSERT_NE(end, std::string::npos);
    const std::string line = text.substr(begin, end - begin);
    EXPECT_EQ(line.rfind("[rank ", 0), 0u) << line;
    whole_lines += line.substr(line.find(']') + 1) == " abcdefghijklmnopqrstuvwxyz";
    begin = end + 1;
  }
  EXPECT_EQ(whole_lines, kThreads * kLines);
}

}  // namespace
}  // namespace lockstep
