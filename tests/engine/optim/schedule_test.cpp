// Schedules against the learning rates of PyTorch 2.15's schedulers.
#include "engine/optim/schedule.h"

#include <gtest/gtest.h>

#include "tests/support/expect_close.h"
#include "tests/support/expect_error.h"

namespace lockstep::optim {
namespace {

using lockstep::testing::expect_close;
using lockstep::testing::expect_error;
using lockstep::testing::kFloat64;

// The rates of the first num_steps steps from a base of 0.4.
std::vector<double> rates(const Schedule& schedule, std::size_t num_steps) {
  std::vector<double> result;
  for (std::size_t step = 0; step < num_steps; ++step) {
    result.push_back(schedule.learning_rate(0.4, step));
  }
  return result;
}

TEST(Schedule, ConstantStaysWhereItIs) {
  EXPECT_EQ(rates(parse_schedule("constant", 10, 0), 3), (std::vector<double>{0.4, 0.4, 0.4}));
}

TEST(Schedule, StepEqualsStepLR) {
  // StepLR(optimizer, step_size=2, gamma=0.5)
  expect_close(rates(parse_schedule("step:2:0.5", 10, 0), 6), {0.4, 0.4, 0.2, 0.2, 0.1, 0.1},
               kFloat64);
  // StepLR(optimizer, step_size=3)
  expect_close(rates(parse_schedule("step:3", 10, 0), 7),
               {0.4, 0.4, 0.4, 0.04000000000000001, 0.04000000000000001, 0.04000000000000001,
                0.004000000000000001},
               kFloat64);
}

TEST(Schedule, CosineEqualsCosineAnnealingLR) {
  // CosineAnnealingLR(optimizer, T_max=6)
  expect_close(
      rates(parse_schedule("cosine", 6, 0), 6),
      {0.4, 0.3732050807568878, 0.30000000000000004, 0.2, 0.10000000000000005, 0.02679491924311226},
      kFloat64);
  // CosineAnnealingLR(optimizer, T_max=5, eta_min=0.1)
  const Schedule schedule = parse_schedule("cosine:0.25", 5, 0);
  expect_close(
      rates(schedule, 6),
      {0.4, 0.37135254915624216, 0.29635254915624215, 0.2036474508437579, 0.1286474508437579, 0.1},
      kFloat64);
  EXPECT_EQ(schedule.learning_rate(0.4, 100), 0.1);
}

TEST(Schedule, WarmUpRisesLinearly) {
  // SequentialLR(optimizer, [LinearLR(optimizer, 1 / 4, 1, total_iters=3),
  //                          CosineAnnealingLR(optimizer, T_max=5)], milestones=[4])
  expect_close(rates(parse_schedule("cosine", 9, 4), 9),
               {0.1, 0.2, 0.30000000000000004, 0.4, 0.4, 0.3618033988749895, 0.2618033988749895,
                0.13819660112501053, 0.03819660112501053},
               kFloat64);
  // SequentialLR(optimizer, [LinearLR(optimizer, 1 / 2, 1, total_iters=1),
  //                          StepLR(optimizer, 2, 0.5)], milestones=[2])
  expect_close(rates(parse_schedule("step:2:0.5", 8, 2), 7), {0.2, 0.4, 0.4, 0.4, 0.2, 0.2, 0.1},
               kFloat64);
}

TEST(Schedule, AWarmUpMayOutlastTheRun) {
  EXPECT_DOUBLE_EQ(parse_schedule("cosine", 3, 10).learning_rate(0.4, 2), 0.4 * 0.3);
  EXPECT_EQ(parse_schedule("cosine", 3, 10).learning_rate(0.4, 10), 0.0);
}

TEST(ParseSchedule, SaysWhatIsAllowed) {
  for (const char* text :
       {"", "linear", "step", "step:", "step:0", "step:x", "step:5:", "step:5:x", "step:5:0",
        "step:5:-1", "step:5:0.5:1", "cosine:3", "cosine:-0.1", "cosine:", "step:-1"}) {
    SCOPED_TRACE(text);
    expect_error(ErrorCode::Usage, "allowed are constant, step:SIZE[:GAMMA] and cosine",
                 [&] { parse_schedule(text, 10, 0); });
  }
}

}  // namespace
}  // namespace lockstep::optim
