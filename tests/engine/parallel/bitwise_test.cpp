// The bitwise mode: not close, but equal.
#include <gtest/gtest.h>

#include "engine/autograd/ops/ops.h"
#include "engine/nn/layers.h"
#include "engine/parallel/bitwise/micro_shards.h"
#include "tests/engine/parallel/function_module.h"
#include "tests/engine/parallel/training.h"
#include "tests/support/expect_close.h"
#include "tests/support/expect_error.h"

namespace lockstep::testing {
namespace {

TrainingCase bitwise_case(std::vector<std::size_t> batches, double dropout = 0) {
  TrainingCase training;
  training.dtype = DType::float32;
  training.dropout = dropout;
  training.batches = std::move(batches);
  return training;
}

class BitwiseTraining : public ::testing::TestWithParam<TrainingCase> {};

TEST_P(BitwiseTraining, WeightsAreIdenticalForEveryNumberOfDevices) {
  const TrainingCase& training = GetParam();
  const Weights reference = train_bitwise_data_parallel(training, 1);
  EXPECT_GT(largest_difference(weights_of(*make_model(training)), reference), 1e-2);
  EXPECT_LE(largest_difference(train_on_one_device(training), reference), 1e-5);
  for (const int count : {1, 2, 4, 8}) {
    SCOPED_TRACE(std::to_string(count) + " devices");
    EXPECT_EQ(train_bitwise_data_parallel(training, static_cast<std::size_t>(count)), reference);
    EXPECT_EQ(train_bitwise_ddp(training, count), reference);
  }
}

// Full, uneven with rows for all micro-shards, and fewer rows than micro-shards.
INSTANTIATE_TEST_SUITE_P(Batches, BitwiseTraining,
                         ::testing::Values(bitwise_case({64}), bitwise_case({37, 24, 61}),
                                           bitwise_case({3, 9, 1}), bitwise_case({29, 64}, 0.3)));

TEST(Bitwise, LossIsTheSumOverAllRows) {
  const TrainingCase training = bitwise_case({21});
  const auto model = make_model(training);
  const TrainingBatch batch = make_batch(training, 0);
  const double expected = sum_loss((*model)(Variable(batch.x)), batch.labels).value().item();
  for (const std::size_t count : {1, 4}) {
    EXPECT_NEAR(parallel::bitwise_data_parallel(*model, cpu_devices(count), sum_loss, batch.x,
                                                batch.labels),
                expected, 1e-4);
  }
}

TEST(Bitwise, RefusesOtherNumbersOfDevices) {
  const TrainingCase training = bitwise_case({8});
  const auto model = make_model(training);
  const TrainingBatch batch = make_batch(training, 0);
  expect_error(ErrorCode::Usage, "1, 2, 4 or 8 devices, found 3", [&] {
    parallel::bitwise_data_parallel(*model, cpu_devices(3), sum_loss, batch.x, batch.labels);
  });
}

TEST(Bitwise, Replica0WritesTheBuffersOfTheModel) {
  nn::Sequential model(
      {make_linear(6, 4, 1, DType::float32), std::make_shared<nn::BatchNorm1d>(4)});
  const TrainingBatch batch = make_batch(bitwise_case({64}), 0);
  parallel::bitwise_data_parallel(model, cpu_devices(2), sum_loss, batch.x, batch.labels);
  // Device 0 of two sees the first 32 rows, in four micro-shards of 8.
  EXPECT_EQ(model.buffers()[2].item(), 4);
}

}  // namespace
}  // namespace lockstep::testing
