// A calibration's figures are the medians of its passes.
#include "tools/calibration/median_of_passes.h"

#include <gtest/gtest.h>

namespace lockstep::tools {
namespace {

predict::MeasuredMachine machine(double figure) {
  predict::MeasuredMachine machine;
  machine.threads_per_device = 2;
  machine.forward = machine.backward = {{{{1}, {1}, {1, 2}}}, {figure, 10 * figure}};
  machine.layers_beside = {1, figure};
  machine.traffic = {{{100}, {figure}}, {{100}, {2 * figure}}};
  machine.overlap = {figure, figure};
  machine.all_reduces.push_back({predict::RankKind::threads, 2, {{8, 16}, {figure, figure}}});
  return machine;
}

TEST(MedianOfPasses, IsNotMovedByOneThatWasDisturbed) {
  const predict::MeasuredMachine result = median_of_passes({machine(3), machine(900), machine(2)});
  EXPECT_EQ(result.threads_per_device, 2U);
  EXPECT_DOUBLE_EQ(result.forward.seconds[0], 3);
  EXPECT_DOUBLE_EQ(result.forward.seconds[1], 30);
  EXPECT_EQ(result.forward.axes[2], (std::vector<double>{1, 2}));
  EXPECT_EQ(result.traffic[1].seconds, (std::vector<double>{6}));
  EXPECT_EQ(result.all_reduces[0].curve.seconds, (std::vector<double>{3, 3}));
  EXPECT_EQ(result.all_reduces[0].curve.sizes, (std::vector<double>{8, 16}));
  EXPECT_EQ(result.layers_beside, (std::vector<double>{1, 3}));
  EXPECT_EQ(result.overlap.comm, 3);
}

// One pass was slow throughout, another one in its last time: both know how the others relate.
TEST(MedianOfPasses, KeepsHowALayersTimesRelate) {
  const auto pass = [](std::vector<double> by_rows) {
    predict::MeasuredMachine machine;
    machine.forward = {{{{4, 8, 16}, {1}, {1}}}, std::move(by_rows)};
    return machine;
  };
  const predict::MeasuredMachine result =
      median_of_passes({pass({1, 2, 4}), pass({2, 4, 8}), pass({1, 2, 32})});
  EXPECT_NEAR(result.forward.seconds[1] / result.forward.seconds[0], 2, 1e-12);
  EXPECT_NEAR(result.forward.seconds[2] / result.forward.seconds[1], 2, 1e-12);
  EXPECT_NEAR(result.forward.seconds[0], 2, 1e-12);
}

TEST(MedianOfPasses, IsTakenOfEachFigureByItself) {
  predict::MeasuredMachine other = machine(5);
  other.forward.seconds[1] = 4;
  const predict::MeasuredMachine result = median_of_passes({machine(1), other, machine(3)});
  EXPECT_DOUBLE_EQ(result.forward.seconds[0], 3);
  EXPECT_DOUBLE_EQ(result.forward.seconds[1], 10);
  EXPECT_DOUBLE_EQ(result.backward.seconds[1], 30);
}

}  // namespace
}  // namespace lockstep::tools
