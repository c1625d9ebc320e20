#include "engine/trace/span.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "engine/trace/recorder.h"

namespace lockstep::trace {
namespace {

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

}  // namespace
}  // namespace lockstep::trace
