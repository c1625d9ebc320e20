// Whatever the number of devices and rows: the weights that one device would have got.
#include <gtest/gtest.h>

#include <tuple>

#include "engine/core/thread_context.h"
#include "engine/parallel/data_parallel/steps.h"
#include "tests/engine/parallel/function_module.h"
#include "tests/engine/parallel/training.h"
#include "tests/support/expect_error.h"

namespace lockstep::testing {
namespace {

double tolerance_of(DType dtype) {
  return dtype == DType::float64 ? 1e-12 : 1e-5;
}

double distance_moved(const TrainingCase& training, const Weights& trained) {
  return largest_difference(weights_of(*make_model(training)), trained);
}

class Equivalence : public ::testing::TestWithParam<std::tuple<int, DType>> {
 protected:
  int count() const { return std::get<0>(GetParam()); }
  std::size_t even_rows() const { return 40 * static_cast<std::size_t>(count()); }

  // Calls compare(training, weights of one device) for every kind of batch.
  template <typename Compare>
  void for_each_case(const Compare& compare) const {
    // Even; and in one run even, uneven and smaller than most counts.
    const std::vector<std::size_t> kinds[] = {{even_rows()}, {24, 17, 1, 9}};
    for (const std::vector<std::size_t>& batches : kinds) {
      SCOPED_TRACE(::testing::PrintToString(batches) + " rows");
      TrainingCase training;
      training.dtype = std::get<1>(GetParam());
      training.batches = batches;
      const Weights reference = train_on_one_device(training);
      EXPECT_GT(distance_moved(training, reference), 1e-2) << "nothing was trained";
      compare(training, reference);
    }
  }
};

TEST_P(Equivalence, DataParallelEndsWithOneDevicesWeights) {
  for_each_case([&](const TrainingCase& training, const Weights& reference) {
    const Weights weights =
        train_data_parallel(training, cpu_devices(static_cast<std::size_t>(count())));
    EXPECT_LE(largest_difference(weights, reference), tolerance_of(training.dtype));
  });
}

TEST_P(Equivalence, DdpEndsWithTheWeightsOfOneDevice) {
  for_each_case([&](const TrainingCase& training, const Weights& reference) {
    EXPECT_LE(largest_difference(train_ddp(training, count()), reference),
              tolerance_of(training.dtype));
  });
}

TEST_P(Equivalence, SynchronisedBatchNormEndsWithTheWeightsOfOneDevice) {
  TrainingCase training;
  training.dtype = std::get<1>(GetParam());
  training.batch_norm = true;
  // Rounding grows faster through a batch norm of three rows.
  const double tolerance = training.dtype == DType::float64 ? 1e-11 : 2e-5;
  for (const std::size_t rows : {23, 3}) {
    SCOPED_TRACE(::testing::Message() << rows << " rows");
    training.batches = {rows};
    const Weights reference = train_on_one_device(training);
    EXPECT_LE(largest_difference(train_ddp(training, count()), reference), tolerance);
    EXPECT_LE(largest_difference(
                  train_data_parallel(training, cpu_devices(static_cast<std::size_t>(count()))),
                  reference),
              tolerance);
  }
}

TEST(SyncBatchNorm, ABatchOfOneRowIsRefusedOnEveryRank) {
  if (test_device_type() != DeviceType::cpu) GTEST_SKIP() << "a GPU's counts stay on the GPU";
  TrainingCase training;
  training.batch_norm = true;
  training.batches = {1};
  expect_error(ErrorCode::Shape, "expected more than 1 value per channel when training, got 1 over",
               [&] { train_ddp(training, 2); });
}

TEST(SyncBatchNorm, NeedsAThreadPerReplicaAndPrintsAsPyTorchs) {
  const auto model = make_model([] {
    TrainingCase training;
    training.batch_norm = true;
    return training;
  }());
  parallel::sync_batch_norm({model}, parallel::make_statistics_exchanges(1));
  EXPECT_NE(model->to_string().find("SyncBatchNorm(12, eps=1e-05, momentum=0.1"),
            std::string::npos);
  ThreadContext context = thread_context();
  context.issue = Issue::by_caller;
  const ThreadContextScope scope(context);
  expect_error(ErrorCode::State, "one thread issues the work of all devices",
               [&] { parallel::sync_batch_norm({model}, parallel::make_statistics_exchanges(1)); });
}

TEST_P(Equivalence, DropoutMasksDoNotDependOnTheSharding) {
  TrainingCase training;
  training.dtype = std::get<1>(GetParam());
  training.batches = {23, 5};
  training.dropout = 0.4;
  const Weights reference = train_on_one_device(training);
  EXPECT_GT(distance_moved(training, reference), 1e-2);
  TrainingCase without = training;
  without.dropout = 0;
  EXPECT_GT(largest_difference(train_on_one_device(without), reference), 1e-3)
      << "dropout changed nothing";
  const auto devices = cpu_devices(static_cast<std::size_t>(count()));
  EXPECT_LE(largest_difference(train_data_parallel(training, devices), reference),
            tolerance_of(training.dtype));
  EXPECT_LE(largest_difference(train_ddp(training, count()), reference),
            tolerance_of(training.dtype));
}

INSTANTIATE_TEST_SUITE_P(Devices, Equivalence,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 5, 7, 8),
                                            ::testing::Values(DType::float32, DType::float64)),
                         [](const auto& tested) {
                           return std::to_string(std::get<0>(tested.param)) + "_" +
                                  std::string(to_string(std::get<1>(tested.param)));
                         });

}  // namespace
}  // namespace lockstep::testing
