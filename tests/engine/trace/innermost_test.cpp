#include "engine/trace/breakdown.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep::trace {
namespace {

Span span_of(const char* name, std::int64_t begin_ns, std::int64_t end_ns,
             Lane lane = Lane::compute, Category category = Category::op,
             std::uint32_t thread = 0) {
  return {.name = name,
          .begin_ns = begin_ns,
          .end_ns = end_ns,
          .thread = thread,
          .lane = lane,
          .category = category};
}

// "a 0-10, b 10-20"
std::string text_of(const std::vector<Span>& pieces) {
  std::string text;
  for (const Span& piece : pieces) {
    text += (text.empty() ? "" : ", ") + std::string(piece.name) + " " +
            std::to_string(piece.begin_ns) + "-" + std::to_string(piece.end_ns);
  }
  return text;
}

TEST(InnermostPieces, AreWhatIsLeftAroundSpansInside) {
  EXPECT_EQ(text_of(innermost_pieces({span_of("outer", 0, 100), span_of("a", 10, 30),
                                      span_of("inside a", 15, 30), span_of("b", 90, 100),
                                      span_of("later", 120, 130)})),
            "outer 0-10, a 10-15, inside a 15-30, outer 30-90, b 90-100, later 120-130");
}

TEST(InnermostPieces, AreDisjointForAnySpans) {
  EXPECT_EQ(text_of(innermost_pieces(
                {span_of("b", 40, 90), span_of("none", 50, 50), span_of("a", 0, 60)})),
            "a 0-40, b 40-90")
      << "without nesting, the span that began last counts";
  EXPECT_TRUE(innermost_pieces({}).empty());
}

TEST(ComputingTime, LeavesOutWaitsInsideAnOp) {
  // A blocking all-reduce inside the op that launches it, as DDP's last bucket.
  const std::vector<Span> spans{span_of("step", 0, 100, Lane::host, Category::step),
                                span_of("backward", 0, 90, Lane::compute, Category::backward),
                                span_of("launch bucket", 50, 80),
                                span_of("all_reduce", 55, 75, Lane::comm, Category::communication),
                                span_of("wait", 85, 90, Lane::host, Category::communication)};
  const std::vector<Span> pieces = pieces_of_rank(spans, 0);
  EXPECT_EQ(times_of(pieces, is_computing), (IntervalSet{{0, 55}, {75, 85}}));
}

TEST(ComputingTime, OfAGpuIsWhatItTimedItself) {
  std::vector<Span> spans{
      span_of("linear", 0, 10),
      span_of("backward", 100, 200, Lane::compute, Category::backward, kDeviceThread),
      span_of("all_reduce", 150, 220, Lane::comm, Category::communication, kDeviceThread),
      span_of("wait", 180, 200, Lane::compute, Category::communication, kDeviceThread)};
  const std::vector<Span> pieces = pieces_of_rank(spans, 0);
  EXPECT_EQ(times_of(pieces, is_computing), (IntervalSet{{100, 180}}))
      << "the comm lane of a device is beside its compute lane";
  EXPECT_EQ(times_of(pieces, [](const Span& piece) { return piece.lane == Lane::comm; }),
            (IntervalSet{{150, 220}}));
}

}  // namespace
}  // namespace lockstep::trace
