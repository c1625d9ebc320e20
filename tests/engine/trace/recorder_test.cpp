#include "engine/trace/recorder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
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

}  // namespace
}  // namespace lockstep::trace
