#include "engine/trace/span.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "engine/trace/recorder.h"

namespace lockstep::trace {
namespace {

TEST(Span, IsNotRecordedWhileNothingRecords) {
  start();
  stop();
  { ScopedSpan span(Lane::compute, Category::forward, "forward"); }
  EXPECT_TRUE(collect().spans.empty());
  EXPECT_FALSE(recording());
}

TEST(Span, KeepsWhatItWasToldAndItsTimes) {
  start();
  const std::int64_t before = now_ns();
  {
    ScopedSpan span(Lane::comm, Category::communication, "all_reduce", 4096);
    span.set_sequence(7);
  }
  const std::int64_t after = now_ns();
  stop();
  const Recording recorded = collect();
  ASSERT_EQ(recorded.spans.size(), 1u);
  const Span& span = recorded.spans[0];
  EXPECT_STREQ(span.name, "all_reduce");
  EXPECT_EQ(span.lane, Lane::comm);
  EXPECT_EQ(span.category, Category::communication);
  EXPECT_EQ(span.num_bytes, 4096u);
  EXPECT_EQ(span.sequence, 7);
  EXPECT_LE(before, span.begin_ns);
  EXPECT_LE(span.begin_ns, span.end_ns);
  EXPECT_LE(span.end_ns, after);
}

// Of all others it would cost more than it tells.
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

TEST(Span, TakesItsRankFromTheContext) {
  start();
  {
    const ThreadContextScope context({.rank = 3, .world_size = 4});
    ScopedSpan by_rank(Lane::host, Category::host, "by rank");
    {
      const TrackScope track(5);
      ScopedSpan by_scope(Lane::host, Category::host, "by scope");
    }
    ScopedSpan by_rank_again(Lane::host, Category::host, "by rank again");
  }
  stop();
  const Recording recorded = collect();
  ASSERT_EQ(recorded.spans.size(), 3u);
  for (const Span& span : recorded.spans) {
    const std::string name = span.name;
    EXPECT_EQ(span.rank, name == "by scope" ? 5 : 3) << name;
  }
}

// What a profiler would be told. Hooks stay for the whole process, so this is one test.
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

}  // namespace
}  // namespace lockstep::trace
