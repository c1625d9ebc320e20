// Many short steps with more devices than cores: what sanitizers look at.
#include <gtest/gtest.h>

#include "engine/autograd/ops/ops.h"
#include "engine/nn/layers.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/data_parallel/data_parallel.h"
#include "engine/parallel/ddp/ddp.h"
#include "tests/engine/parallel/function_module.h"
#include "tests/engine/parallel/training.h"
#include "tests/support/expect_close.h"
#include "tests/support/run_ranks.h"

namespace lockstep::testing {
namespace {

constexpr std::size_t kNumSteps = 100;

TEST(Stress, DataParallelWithEightDevices) {
  TrainingCase training;
  training.num_steps = kNumSteps;
  training.batches = {40, 8, 3, 17};
  EXPECT_LE(largest_difference(train_data_parallel(training, cpu_devices(8)),
                               train_on_one_device(training)),
            1e-11);
}

TEST(Stress, DdpWithEightRanksAndManyBuckets) {
  TrainingCase training;
  training.num_steps = kNumSteps;
  training.batches = {40, 8, 3, 17};
  parallel::DdpOptions options;
  options.reducer.bucket_byte_limits = {1};
  EXPECT_LE(largest_difference(train_ddp(training, 8, options), train_on_one_device(training)),
            1e-11);
}

TEST(Stress, CallsDroppedWithoutBackward) {
  const auto linear = make_linear(5, 2, 1);
  parallel::DataParallelOptions options;
  options.devices = cpu_devices(8);
  parallel::DataParallel wrapper(linear, options);
  for (std::size_t step = 0; step < kNumSteps; ++step) {
    const Variable y = wrapper(Variable(random_tensor({16, 5}, step)));
    if (step % 2 == 0) sum(y).backward();
  }
  expect_close(linear->bias().grad(), std::vector<double>(2, 16.0 * kNumSteps / 2), kFloat64);
}

}  // namespace
}  // namespace lockstep::testing
