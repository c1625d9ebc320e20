#include "engine/trace/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "engine/trace/counters.h"
#include "engine/trace/span.h"

namespace lockstep::trace {
namespace {

void record_spans(std::size_t num_spans) {
  for (std::size_t i = 0; i < num_spans; ++i) {
    ScopedSpan span(Lane::compute, Category::op, "op", i);
  }
}

TEST(Recorder, CountsWhatDoesNotFit) {
  start({.max_entries = kBlockEntries});
  record_spans(kBlockEntries + 10);
  stop();
  const Recording recorded = collect();
  EXPECT_EQ(recorded.spans.size(), kBlockEntries);
  EXPECT_EQ(recorded.num_dropped, 10u);
  EXPECT_EQ(recorded.spans.front().num_bytes, 0u);
  EXPECT_EQ(recorded.spans.back().num_bytes, kBlockEntries - 1);
}

// Several threads record, through the ends of chunks, while another collects; nothing is lost.
TEST(Recorder, ManyThreadsRecordWhileAnotherCollects) {
  constexpr std::size_t kNumThreads = 4;
  constexpr std::size_t kNumSpans = 5 * kBlockEntries / 2;
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

// Other spans have none, because measuring it would cost more than it is worth.
TEST(Span, HasTheCpuTimeOfComputationAndWaits) {
  start();
  const auto spin = [] {
    for (int rounds = 0; rounds < 20000; ++rounds) asm volatile("");
  };
  {
    ScopedSpan step(Lane::host, Category::step, "step");
    ScopedSpan alone(Lane::host, Category::wait, "alone");
    spin();
  }
  {
    ScopedSpan outer(Lane::compute, Category::backward, "outer");
    ScopedSpan inner(Lane::compute, Category::op, "inner");
    {
      ScopedSpan wait(Lane::host, Category::communication, "wait");
      ScopedSpan nested(Lane::comm, Category::communication, "nested");
      spin();
    }
    spin();
  }
  {
    ScopedSpan unused(Lane::compute, Category::forward, "unused");
    unused.cancel();
  }
  { ScopedSpan after(Lane::compute, Category::op, "after"); }
  stop();
  std::map<std::string, std::int64_t> cpu_ns;
  for (const Span& span : collect().spans) cpu_ns[span.name] = span.cpu_ns;
  for (const char* name : {"step", "alone", "inner", "nested"}) {
    EXPECT_EQ(cpu_ns.at(name), kNotMeasured) << name;
  }
  EXPECT_GT(cpu_ns.at("wait"), 0);
  EXPECT_GT(cpu_ns.at("outer"), cpu_ns.at("wait"));
  EXPECT_GE(cpu_ns.at("after"), 0);
}

// The ranges that a profiler would see. Hooks stay for the whole process, so this is one test.
std::vector<std::string>& ranges() {
  static std::vector<std::string> texts;
  return texts;
}

TEST(RangeHooks, HearOfEverySpan) {
  set_range_hooks({[](const char* name) { ranges().push_back(std::string("push ") + name); },
                   [] { ranges().push_back("pop"); }});
  {
    ScopedSpan outer(Lane::compute, Category::forward, "outer");
    ScopedSpan inner(Lane::compute, Category::op, "inner");
  }
  EXPECT_FALSE(recording()) << "ranges alone record nothing";
  start();
  {
    ScopedSpan kept(Lane::compute, Category::op, "kept");
    ScopedSpan cancelled(Lane::compute, Category::op, "cancelled");
    cancelled.cancel();
  }
  stop();
  EXPECT_FALSE(recording());
  EXPECT_EQ(ranges(), (std::vector<std::string>{"push outer", "push inner", "pop", "pop",
                                                "push kept", "push cancelled", "pop", "pop"}));
  const Recording recorded = collect();
  ASSERT_EQ(recorded.spans.size(), 1u);
  EXPECT_STREQ(recorded.spans[0].name, "kept");
}

TEST(Counters, ForgetWhatIsCountedInsideAnUncountedScope) {
  reset_collective_counts();
  count_collective(0, "all_reduce", 5);
  {
    const UncountedScope scope({0, 2});
    count_collective(0, "all_reduce", 7);
    count_collective(2, "broadcast", 1);
    count_collective(1, "broadcast", 3);  // not of these ranks
  }
  EXPECT_THAT(collective_counts(), ::testing::ElementsAre(CollectiveCount{0, "all_reduce", 1, 5},
                                                          CollectiveCount{1, "broadcast", 1, 3}));
}

}  // namespace
}  // namespace lockstep::trace
