// DDP that one thread drives.
#include "engine/parallel/ddp/replica_group.h"

#include <gtest/gtest.h>

#include <thread>

#include "engine/autograd/ops/ops.h"
#include "engine/core/thread_context.h"
#include "engine/nn/layers.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/data_parallel/data_parallel.h"
#include "engine/runtime/step_graph.h"
#include "tests/engine/parallel/function_module.h"
#include "tests/engine/parallel/training.h"
#include "tests/support/expect_close.h"
#include "tests/support/expect_error.h"

namespace lockstep::testing {
namespace {

// The work of train_ddp (training.h), by one thread.
Weights train_replica_group(const TrainingCase& training, std::size_t world_size,
                            const parallel::DdpOptions& options) {
  const auto model = make_model(training);
  model->to(test_device(0));
  const std::vector<Device> devices = cpu_devices(world_size);
  parallel::ReplicaGroup group(model, devices, options);
  std::vector<std::unique_ptr<optim::Sgd>> optimizers;
  for (std::size_t rank = 0; rank < world_size; ++rank) {
    optim::SgdOptions sgd;
    sgd.learning_rate = training.learning_rate;
    sgd.momentum = training.momentum;
    optimizers.push_back(std::make_unique<optim::Sgd>(group.replica(rank).parameters(), sgd));
  }
  for (std::size_t step = 0; step < training.num_steps; ++step) {
    const TrainingBatch batch = make_batch(training, step);
    for (const auto& optimizer : optimizers) optimizer->zero_grad();
    group.run_backward([&](nn::Module& replica, std::size_t rank) {
      const TrainingShard shard =
          shard_of(batch, static_cast<int>(rank), static_cast<int>(world_size), devices[rank]);
      thread_context().step = step;
      thread_context().first_row = shard.first_row;
      const Variable loss = sum_loss(replica(Variable(shard.x)), shard.labels);
      loss.backward(Tensor::full({}, shard.weight, loss.dtype(), loss.device()));
    });
    for (const auto& optimizer : optimizers) optimizer->step();
  }
  const Weights first = weights_of(group.replica(0));
  for (std::size_t rank = 1; rank < world_size; ++rank) {
    EXPECT_EQ(weights_of(group.replica(rank)), first) << "rank " << rank << " drifted apart";
  }
  return first;
}

class ReplicaGroup : public ::testing::TestWithParam<int> {};

TEST_P(ReplicaGroup, EndsWithTheBitsOfDdpBetweenThreads) {
  for (const auto& limits : {std::vector<std::size_t>{1}, std::vector<std::size_t>{1 << 20}}) {
    for (const parallel::Overlap overlap :
         {parallel::Overlap::during_backward, parallel::Overlap::after_backward}) {
      TrainingCase training;
      training.batches = {24, 17, 1};
      training.num_steps = 6;
      training.dropout = 0.3;
      parallel::DdpOptions options;
      options.reducer.bucket_byte_limits = limits;
      options.reducer.overlap = overlap;
      EXPECT_EQ(train_replica_group(training, static_cast<std::size_t>(GetParam()), options),
                train_ddp(training, GetParam(), options));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, ReplicaGroup, ::testing::Values(1, 2, 3, 4, 8));

// Gradients of a fixed batch, changed by SGD; the same tensors in every step.
class FixedStep {
 public:
  explicit FixedStep(std::size_t world_size) : devices_(cpu_devices(world_size)) {
    TrainingCase training;
    training.dtype = DType::float32;
    const auto model = make_model(training);
    model->to(devices_[0]);
    parallel::DdpOptions options;
    options.reducer.bucket_byte_limits = {64};  // several buckets, so that most are asynchronous
    group_ = std::make_unique<parallel::ReplicaGroup>(model, devices_, options);
    const TrainingBatch batch = make_batch(training, 0);
    for (std::size_t rank = 0; rank < world_size; ++rank) {
      shards_.push_back(
          shard_of(batch, static_cast<int>(rank), static_cast<int>(world_size), devices_[rank]));
      optim::SgdOptions sgd;
      sgd.learning_rate = 0.1;
      sgd.momentum = 0.9;
      optimizers_.push_back(std::make_unique<optim::Sgd>(group_->replica(rank).parameters(), sgd));
    }
  }
  void run() {
    for (const auto& optimizer : optimizers_) optimizer->zero_grad();
    group_->run_backward([&](nn::Module& replica, std::size_t rank) {
      cross_entropy(replica(Variable(shards_[rank].x)), shards_[rank].labels).backward();
    });
    for (const auto& optimizer : optimizers_) optimizer->step();
  }
  Weights weights(std::size_t rank) { return weights_of(group_->replica(rank)); }
  const std::vector<Device>& devices() const { return devices_; }

 private:
  std::vector<Device> devices_;
  std::unique_ptr<parallel::ReplicaGroup> group_;
  std::vector<TrainingShard> shards_;
  std::vector<std::unique_ptr<optim::Sgd>> optimizers_;
};

TEST(ReplicaGroupGraph, CapturedStepsHaveTheBitsOfIssued) {
  if (test_device_type() != DeviceType::cuda) GTEST_SKIP() << "a test of CUDA graphs";
  constexpr std::size_t kNumSteps = 12;
  for (const std::size_t world_size : {1, 2, 4}) {
    FixedStep issued(world_size);
    FixedStep captured(world_size);
    runtime::StepGraph graph(captured.devices());
    for (std::size_t step = 0; step < kNumSteps; ++step) {
      issued.run();
      graph.run([&] { captured.run(); });
    }
    EXPECT_TRUE(graph.is_captured());
    for (std::size_t rank = 0; rank < world_size; ++rank) {
      EXPECT_EQ(captured.weights(rank), issued.weights(0)) << world_size << " devices";
    }
  }
}

TEST(ReplicaGroupErrors, NameWhatIsWrong) {
  const auto model = make_linear(4, 2, 1);
  expect_error(ErrorCode::Device, "appears twice", [&] {
    parallel::ReplicaGroup group(model, {test_device(0), test_device(0)});
  });
  expect_error(ErrorCode::Device, "module must have its parameters and buffers on device cpu:1",
               [&] {
                 parallel::ReplicaGroup group(model, {test_device(1), test_device(0)});
               });
  parallel::ReplicaGroup group(model, {test_device(0), test_device(1)});
  expect_error(ErrorCode::State, "rank 1: these parameters got no gradient", [&] {
    group.run_backward([&](nn::Module& replica, std::size_t rank) {
      if (rank == 0) sum(replica(Variable(random_tensor({3, 4}, 1)))).backward();
    });
  });
}

TEST(IssueByCaller, DataParallelHasTheBitsOfItsWorkers) {
  TrainingCase training;
  training.batches = {24, 17};
  training.num_steps = 6;
  training.dropout = 0.3;
  for (const std::size_t count : {2, 3, 4, 8}) {
    const Weights expected = train_data_parallel(training, cpu_devices(count));
    ThreadContext context = thread_context();
    context.issue = Issue::by_caller;
    const ThreadContextScope scope(context);
    EXPECT_EQ(train_data_parallel(training, cpu_devices(count)), expected) << count << " devices";
  }
}

}  // namespace
}  // namespace lockstep::testing
