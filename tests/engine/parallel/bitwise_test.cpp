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

TrainingCase bitwise_case(std::vector<std::size_t> batches) {
  TrainingCase training;
  training.dtype = DType::float32;
  training.batches = std::move(batches);
  return training;
}

class Bitwise : public ::testing::TestWithParam<std::vector<std::size_t>> {};

TEST_P(Bitwise, WeightsAreIdenticalFor1And2And4And8DevicesBothWays) {
  const TrainingCase training = bitwise_case(GetParam());
  const Weights reference = train_bitwise_data_parallel(training, 1);
  EXPECT_GT(largest_difference(weights_of(*make_model(training)), reference), 1e-2);
  for (const int count : {1, 2, 4, 8}) {
    SCOPED_TRACE(std::to_string(count) + " devices");
    EXPECT_EQ(train_bitwise_data_parallel(training, static_cast<std::size_t>(count)), reference);
    EXPECT_EQ(train_bitwise_ddp(training, count), reference);
  }
}

TEST_P(Bitwise, WeightsAreThoseOfPlainTrainingButForRounding) {
  const TrainingCase training = bitwise_case(GetParam());
  EXPECT_LE(
      largest_difference(train_bitwise_data_parallel(training, 4), train_on_one_device(training)),
      1e-5);
}

// Full, uneven with rows for all micro-shards, and fewer rows than micro-shards.
INSTANTIATE_TEST_SUITE_P(Batches, Bitwise,
                         ::testing::Values(std::vector<std::size_t>{64},
                                           std::vector<std::size_t>{37, 24, 61},
                                           std::vector<std::size_t>{3, 9, 1}));

TEST(Bitwise, DropoutIsIdenticalToo) {
  TrainingCase training = bitwise_case({29, 64});
  training.dropout = 0.3;
  const Weights reference = train_bitwise_data_parallel(training, 1);
  for (const int count : {2, 8}) {
    EXPECT_EQ(train_bitwise_data_parallel(training, static_cast<std::size_t>(count)), reference);
    EXPECT_EQ(train_bitwise_ddp(training, count), reference);
  }
}

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

TEST(Bitwise, FrozenParametersGetNoGradient) {
  const TrainingCase training = bitwise_case({16});
  const auto model = make_model(training);
  std::vector<Variable> parameters = model->parameters();
  parameters[0].set_requires_grad(RequiresGrad::no);
  const TrainingBatch batch = make_batch(training, 0);
  parallel::bitwise_data_parallel(*model, cpu_devices(2), sum_loss, batch.x, batch.labels);
  EXPECT_FALSE(parameters[0].grad().defined());
  for (std::size_t i = 1; i < parameters.size(); ++i) EXPECT_TRUE(parameters[i].grad().defined());
}

TEST(Bitwise, BuffersOfReplicasAreTheirOwnAndReplica0WritesTheOriginals) {
  const auto make = [] {
    return std::make_shared<nn::Sequential>(std::vector<std::shared_ptr<nn::Module>>{
        make_linear(6, 4, 1, DType::float32), std::make_shared<nn::BatchNorm1d>(4)});
  };
  const TrainingBatch batch = make_batch(bitwise_case({64}), 0);
  const auto run = [&](nn::Module& model, std::size_t rows, std::size_t count) {
    parallel::bitwise_data_parallel(model, cpu_devices(count), sum_loss, batch.x.rows(0, rows),
                                    batch.labels.rows(0, rows));
  };
  const auto model = make();
  run(*model, 64, 2);
  // Device 0 of two sees the first 32 rows, in four micro-shards of 8.
  EXPECT_EQ(model->buffers()[2].item(), 4);
}

}  // namespace
}  // namespace lockstep::testing
