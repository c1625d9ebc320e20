#include "engine/trace/bytes_in_flight.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace lockstep::trace {
namespace {

using Points = std::vector<std::pair<std::int64_t, std::size_t>>;

Span mover(std::int64_t begin_ns, std::int64_t end_ns, std::size_t num_bytes,
           std::uint32_t thread = 0, Lane lane = Lane::comm) {
  return {.name = "mover",
          .begin_ns = begin_ns,
          .end_ns = end_ns,
          .num_bytes = num_bytes,
          .thread = thread,
          .lane = lane,
          .category = lane == Lane::copy ? Category::copy : Category::communication};
}

Points points_of(const std::vector<Span>& spans, int rank = 0) {
  Points points;
  for (const Sample& sample : bytes_in_flight(spans, rank)) {
    EXPECT_EQ(sample.rank, rank);
    points.emplace_back(sample.time_ns, sample.num_bytes);
  }
  return points;
}

TEST(BytesInFlight, AreTheSumOfWhatIsUnderWay) {
  EXPECT_EQ(
      points_of({mover(10, 40, 100), mover(20, 30, 7, 1), mover(25, 50, 1000, 2, Lane::copy)}),
      (Points{{10, 100}, {20, 107}, {25, 1107}, {30, 1100}, {40, 1000}, {50, 0}}));
}

TEST(BytesInFlight, DoNotChangeWhereOneOfTheSameSizeFollowsAtOnce) {
  EXPECT_EQ(points_of({mover(10, 20, 64), mover(20, 30, 64)}), (Points{{10, 64}, {30, 0}}));
}

TEST(BytesInFlight, CountWhatIsNestedOnce) {
  EXPECT_EQ(points_of({mover(10, 40, 100, 0, Lane::copy), mover(15, 35, 60),
                       mover(20, 30, 50, 0, Lane::copy), mover(45, 50, 1)}),
            (Points{{10, 100}, {40, 0}, {45, 1}, {50, 0}}));
}

TEST(BytesInFlight, OfALaneThatTheDeviceTimedAreTheDevices) {
  EXPECT_EQ(points_of({mover(10, 11, 100, 0, Lane::copy), mover(10, 12, 8),
                       mover(20, 40, 100, kDeviceThread, Lane::copy),
                       mover(30, 50, 100, kDeviceThread, Lane::copy)}),
            (Points{{10, 8}, {12, 0}, {20, 100}, {30, 200}, {40, 100}, {50, 0}}));
}

TEST(BytesInFlight, OfWaitsComputationAndOtherRanksAreNone) {
  Span of_another = mover(0, 9, 5);
  of_another.rank = 1;
  EXPECT_EQ(points_of({mover(0, 9, 5, 0, Lane::host), mover(0, 9, 5, 0, Lane::compute),
                       mover(0, 9, 0), of_another}),
            Points{});
}

}  // namespace
}  // namespace lockstep::trace
