#include "engine/trace/recorder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "engine/trace/span.h"

namespace lockstep::trace {
namespace {

void record_spans(std::size_t num_spans) {
  for (std::size_t i = 0; i < num_spans; ++i) {
    ScopedSpan span(Lane::compute, Category::op, "op", i);
  }
}

TEST(Recorder, ParentsStandBeforeTheirChildren) {
  start();
  {
    ScopedSpan parent(Lane::compute, Category::forward, "parent");
    ScopedSpan child(Lane::compute, Category::op, "child");
  }
  stop();
  const Recording recorded = collect();
  ASSERT_EQ(recorded.spans.size(), 2u);
  EXPECT_STREQ(recorded.spans[0].name, "parent");
  EXPECT_STREQ(recorded.spans[1].name, "child");
}

TEST(Recorder, SpansSurviveTheirThread) {
  start();
  std::thread([] { record_spans(3); }).join();
  std::thread([] { record_spans(4); }).join();
  stop();
  EXPECT_EQ(collect().spans.size(), 7u);
  EXPECT_EQ(collect().spans.size(), 7u) << "collecting does not consume";
}

TEST(Recorder, CountsWhatDoesNotFit) {
  start({.max_entries = kChunkEntries});
  record_spans(kChunkEntries + 10);
  stop();
  const Recording recorded = collect();
  EXPECT_EQ(recorded.spans.size(), kChunkEntries);
  EXPECT_EQ(recorded.num_dropped, 10u);
  EXPECT_EQ(recorded.spans.front().num_bytes, 0u);
  EXPECT_EQ(recorded.spans.back().num_bytes, kChunkEntries - 1);
}

TEST(Recorder, LeavesOutWhatAnUntracedThreadDoes) {
  start();
  {
    ScopedSpan outer(Lane::host, Category::host, "outer");
    const UntracedScope untraced;
    ScopedSpan inner(Lane::compute, Category::op, "inner");
    std::thread([] { ScopedSpan other(Lane::comm, Category::op, "other"); }).join();
  }
  stop();
  const Recording recording = collect();
  ASSERT_EQ(recording.spans.size(), 2u);
  EXPECT_STREQ(recording.spans[0].name, "outer");
  EXPECT_STREQ(recording.spans[1].name, "other");
}

TEST(Recorder, LeavesOutTheStepsBetweenThoseItRecords) {
  start({.step_stride = 3});
  const ThreadContextScope scope({});
  for (thread_context().step = 0; thread_context().step < 7; ++thread_context().step) {
    ScopedSpan span(Lane::host, Category::step, "step");
    span.set_sequence(static_cast<std::int64_t>(thread_context().step));
    EXPECT_EQ(is_untraced(), thread_context().step % 3 != 0);
  }
  stop();
  std::vector<std::int64_t> steps;
  for (const Span& span : collect().spans) steps.push_back(span.sequence);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{0, 3, 6}));
  start();  // for the tests that follow: every step
  stop();
}

TEST(Recorder, SpansOpenAtTheStartAreLeftOut) {
  start();
  {
    ScopedSpan outer(Lane::host, Category::host, "outer");
    start();
    ScopedSpan inner(Lane::host, Category::host, "inner");
  }
  stop();
  const Recording recorded = collect();
  ASSERT_EQ(recorded.spans.size(), 1u);
  EXPECT_STREQ(recorded.spans[0].name, "inner");
}

TEST(Recorder, TakesSpansThatWereTimedElsewhere) {
  record({.name = "off"});
  start();
  record({.name = "kernel", .begin_ns = 10, .end_ns = 20, .rank = 2, .lane = Lane::compute});
  stop();
  const Recording recorded = collect();
  ASSERT_EQ(recorded.spans.size(), 1u);
  EXPECT_EQ(recorded.spans[0].thread, kDeviceThread);
  EXPECT_EQ(recorded.spans[0].rank, 2);
  EXPECT_EQ(recorded.spans[0].begin_ns, 10);
}

TEST(Recorder, KeepsSamplesOfMemoryByTime) {
  record(Sample{1, 1, 0});
  start();
  record(Sample{30, 300, 0});
  std::thread([] { record(Sample{20, 200, 1}); }).join();
  {
    const UntracedScope untraced;
    record(Sample{40, 400, 0});
  }
  stop();
  record(Sample{50, 500, 0});
  const Recording recorded = collect();
  ASSERT_EQ(recorded.memory.size(), 2u);
  EXPECT_EQ(recorded.memory[0].num_bytes, 200u);
  EXPECT_EQ(recorded.memory[0].rank, 1);
  EXPECT_EQ(recorded.memory[1].num_bytes, 300u);
}

TEST(Recorder, ShowsSlowMotionAtFullSpeed) {
  const std::int64_t before = now_ns();
  start({.times_slower = 10});
  const std::int64_t after = now_ns();
  const std::int64_t later = after + 1'000'000;
  record({.name = "kernel", .begin_ns = later, .end_ns = later});
  record(Sample{later, 7, 0});
  stop();
  const Recording recorded = collect();
  EXPECT_EQ(recorded.spans.at(0).begin_ns, recorded.memory.at(0).time_ns);
  EXPECT_GE(recorded.memory[0].time_ns, before + 100'000);
  EXPECT_LE(recorded.memory[0].time_ns, after + 100'000 + (after - before));
}

// Several threads record, through the ends of chunks, while another collects; nothing is lost.
TEST(Recorder, ManyThreadsRecordWhileAnotherCollects) {
  constexpr std::size_t kNumThreads = 4;
  constexpr std::size_t kNumSpans = 5 * kChunkEntries / 2;
  std::atomic<std::size_t> num_running{kNumThreads};
  start();
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kNumThreads; ++i) {
    threads.emplace_back([&] {
      record_spans(kNumSpans);
      num_running.fetch_sub(1);
    });
  }
  std::thread reader([&] {
    std::size_t num_seen = 0;
    while (num_running.load() != 0) {
      const Recording recorded = collect();
      EXPECT_GE(recorded.spans.size(), num_seen) << "spans never vanish";
      num_seen = recorded.spans.size();
      for (const Span& span : recorded.spans) {
        ASSERT_STREQ(span.name, "op");
      }
    }
  });
  for (std::thread& thread : threads) {
    thread.join();
  }
  reader.join();
  const Recording recorded = collect();
  ASSERT_EQ(recorded.spans.size(), kNumThreads * kNumSpans);
  std::map<std::uint32_t, std::size_t> next_of_thread;
  for (const Span& span : recorded.spans) {
    EXPECT_EQ(span.num_bytes, next_of_thread[span.thread]++) << "each once, in order";
  }
  EXPECT_EQ(next_of_thread.size(), kNumThreads);
  stop();
}

TEST(Recorder, MayStartAnewWhileOthersRecord) {
  std::atomic<bool> done{false};
  start();
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!done.load()) {
        record_spans(10);
      }
    });
  }
  for (std::size_t i = 0; i < 50; ++i) {
    start({.max_entries = 8 * kChunkEntries});
    for (const Span& span : collect().spans) {
      ASSERT_STREQ(span.name, "op");
    }
  }
  done.store(true);
  for (std::thread& thread : threads) {
    thread.join();
  }
  stop();
}

}  // namespace
}  // namespace lockstep::trace
