// Unions, intersections and differences, beside the same on a row of cells.
#include "tools/torch_trace/intervals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace lockstep::tools {
namespace {

constexpr int kCells = 40;
using Cells = std::vector<bool>;

Cells cells_of(const Intervals& intervals) {
  Cells cells(kCells, false);
  for (const Interval& interval : intervals) {
    for (int i = static_cast<int>(interval.begin); i < static_cast<int>(interval.end); ++i) {
      cells[static_cast<std::size_t>(i)] = true;
    }
  }
  return cells;
}

void expect_valid(const Intervals& intervals) {
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    EXPECT_LT(intervals[i].begin, intervals[i].end);
    if (i > 0) {
      EXPECT_LE(intervals[i - 1].end, intervals[i].begin);
    }
  }
}

TEST(Intervals, AgreeWithCells) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int> place(0, kCells), count(0, 8);
  const auto some = [&] {
    Intervals any;
    for (int i = count(random); i > 0; --i) {
      const int a = place(random), b = place(random);
      any.push_back({static_cast<double>(std::min(a, b)), static_cast<double>(std::max(a, b))});
    }
    return any;
  };
  for (int round = 0; round < 500; ++round) {
    const Intervals a = some(), b = some();
    const Intervals a_united = united(a), b_united = united(b);
    const Interval window{5, 30};
    const Intervals both = common(a_united, b_united), rest = without(a_united, b_united);
    const Intervals inside = within(a_united, window);
    for (const Intervals& result : {a_united, both, rest, inside}) expect_valid(result);
    const Cells in_a = cells_of(a), in_b = cells_of(b);
    EXPECT_EQ(cells_of(a_united), in_a);
    int num_both = 0;
    for (std::size_t i = 0; i < kCells; ++i) {
      num_both += in_a[i] && in_b[i];
      EXPECT_EQ(cells_of(both)[i], in_a[i] && in_b[i]);
      EXPECT_EQ(cells_of(rest)[i], in_a[i] && !in_b[i]);
      EXPECT_EQ(cells_of(inside)[i], in_a[i] && i >= 5 && i < 30);
    }
    EXPECT_EQ(total_seconds(both), num_both);
  }
}

TEST(Intervals, TouchingOnesAreOne) {
  const Intervals whole = united({{2, 3}, {1, 2}, {5, 5}});
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0].begin, 1);
  EXPECT_EQ(whole[0].end, 3);
}

}  // namespace
}  // namespace lockstep::tools
