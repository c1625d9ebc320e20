// A pipeline computes what one device does, by every schedule.
#include "engine/core/thread_context.h"
#include "engine/nn/models.h"
#include "engine/nn/state_dict.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/pipeline/pipeline_stage.h"

#include <gtest/gtest.h>

#include <mutex>

#include "tests/engine/parallel/training.h"
#include "tests/support/expect_error.h"
#include "tests/support/run_ranks.h"

namespace lockstep::testing {
namespace {

using parallel::PipelineOptions;
using parallel::PipelineStage;
using enum plan::PipelineSchedule;

constexpr std::size_t kNumTokens = 5;

struct Net {
  std::string model;
  nn::ModelData data;
  double dropout = 0;
};

const Net kMlp = {"mlp:6-8-7-8-9-8-7-8-5", {{6}, kNumTokens}};  // eight layers
const Net kCnn = {"cnn:3c3-p2-4c3-12-5", {{8, 8, 2}, kNumTokens}};
const Net kGpt = {"gpt:3-2-8-4", {{4}, kNumTokens, nn::ModelData::Values::tokens}};

// The batches of the steps in turn, the last of them small.
const std::vector<std::size_t> kBatches = {24, 21, 9};

Variable flat_loss(const Variable& logits, const Tensor& labels) {
  return sum_loss(logits, labels.reshape({labels.num_elements()}));
}

std::shared_ptr<nn::Module> make_net(const Net& net, Device device) {
  nn::ModelSpec spec = nn::parse_model(net.model);
  spec.gpt.dropout = net.dropout;
  return nn::make_model(spec, net.data, 3, DType::float64, device);
}

TrainingBatch make_net_batch(const Net& net, std::size_t step, Device device) {
  const std::size_t rows = kBatches[step % kBatches.size()];
  Rng rng(100 + step);
  std::vector<std::size_t> sizes{rows};
  for (std::size_t i = 0; i < net.data.row.num_dims(); ++i) sizes.push_back(net.data.row[i]);
  const Shape shape{std::span<const std::size_t>(sizes)};
  const bool is_text = net.data.values == nn::ModelData::Values::tokens;
  const Shape label_shape = is_text ? shape : Shape{rows};
  const auto numbers = [&](const Shape& of) {
    std::vector<std::int64_t> values(of.num_elements());
    for (std::int64_t& value : values) value = static_cast<std::int64_t>(rng.below(kNumTokens));
    return Tensor::from(values, of, Device{}).to(device);
  };
  const Tensor x = is_text
                       ? numbers(shape)
                       : Tensor::uniform(shape, -1, 1, rng, DType::float64, Device{}).to(device);
  return {x, numbers(label_shape)};
}

// Steps of which gradients(batch) computes those of the mean loss.
template <typename Gradients>
void run_net_steps(const Net& net, const nn::Module& tensors, Device device,
                   const Gradients& gradients) {
  optim::SgdOptions options;
  options.learning_rate = 0.1;
  options.momentum = 0.9;
  optim::Sgd optimizer(tensors.parameters(), options);
  for (std::size_t step = 0; step < kBatches.size(); ++step) {
    ThreadContext context = thread_context();
    context.step = step;
    context.first_row = 0;
    const ThreadContextScope scope(context);
    optimizer.zero_grad();
    gradients(make_net_batch(net, step, device));
    optimizer.step();
  }
}

double mean_weight(const TrainingBatch& batch) {
  return 1.0 / static_cast<double>(batch.labels.num_elements());
}

struct Trained {
  std::vector<std::vector<double>> weights;  // in the order of the model's state
  std::vector<double> losses;
};

Trained train_on_one(const Net& net) {
  const auto model = make_net(net, Device{});
  Trained result;
  run_net_steps(net, *model, Device{}, [&](const TrainingBatch& batch) {
    const Variable loss = flat_loss((*model)(Variable(batch.x)), batch.labels);
    loss.backward(Tensor::full({}, mean_weight(batch), DType::float64, Device{}));
    result.losses.push_back(loss.item());
  });
  for (const auto& [name, tensor] : nn::state_dict(*model)) {
    result.weights.push_back(tensor.to_vector<double>());
  }
  return result;
}

Trained train_in_stages(const Net& net, int num_stages, const PipelineOptions& options) {
  Trained result;
  std::mutex mutex;
  run_ranks(num_stages, [&](comm::Communicator& communicator) {
    const Device device{DeviceType::cpu, communicator.rank()};
    PipelineStage stage(make_net(net, device), communicator, options);
    std::vector<double> losses;
    run_net_steps(net, *stage.tensors(), device, [&](const TrainingBatch& batch) {
      losses.push_back(
          stage.run_step(batch.x, batch.labels, 0, mean_weight(batch), flat_loss).item());
    });
    const PipelineStage::NamedTensors state = stage.gather_state();
    const std::lock_guard lock(mutex);
    if (result.losses.empty()) result.losses = losses;
    EXPECT_EQ(losses, result.losses) << "rank " << communicator.rank();
    EXPECT_EQ(state.empty(), communicator.rank() > 0);
    for (const auto& [name, tensor] : state) result.weights.push_back(tensor.to_vector<double>());
  });
  return result;
}

void expect_same(const Trained& found, const Trained& expected) {
  ASSERT_EQ(found.weights.size(), expected.weights.size());
  EXPECT_LE(largest_difference(found.weights, expected.weights), 1e-12);
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-11);
  }
}

TEST(PipelineStage, EqualsOneDeviceForEveryNumberOfStagesAndMicroBatches) {
  for (const Net& net : {kMlp, kCnn, kGpt}) {
    const Trained expected = train_on_one(net);
    for (const int stages : {1, 2, 3, 4}) {
      for (const std::size_t micro_batches : {1, 2, 5, 8}) {
        SCOPED_TRACE(net.model + " in " + std::to_string(stages) + " stages, " +
                     std::to_string(micro_batches) + " micro-batches");
        const Trained by_1f1b =
            train_in_stages(net, stages, {one_forward_one_backward, micro_batches});
        expect_same(by_1f1b, expected);
        const Trained by_gpipe = train_in_stages(net, stages, {gpipe, micro_batches});
        EXPECT_EQ(by_gpipe.weights, by_1f1b.weights);  // the same additions, in the same order
      }
    }
  }
}

TEST(PipelineStage, InterleavedEqualsOneDeviceToo) {
  const Trained expected = train_on_one(kMlp);
  for (const int stages : {1, 2, 3, 4}) {
    for (const std::size_t groups : {1, 2}) {
      SCOPED_TRACE(stages);
      const std::size_t micro_batches = groups * static_cast<std::size_t>(stages);
      expect_same(train_in_stages(kMlp, stages, {interleaved, micro_batches, 2}), expected);
    }
  }
  expect_same(train_in_stages(kGpt, 2, {interleaved, 4, 2}), train_on_one(kGpt));
}

TEST(PipelineStage, DropsOutTheElementsThatOneDeviceDoes) {
  Net net = kGpt;
  net.dropout = 0.3;
  expect_same(train_in_stages(net, 3, {one_forward_one_backward, 5}), train_on_one(net));
}

TEST(PipelineStage, ABatchWithFewerRowsThanMicroBatchesHasFewer) {
  expect_same(train_in_stages(kMlp, 2, {one_forward_one_backward, 16}), train_on_one(kMlp));
  expect_same(train_in_stages(kMlp, 2, {interleaved, 16, 2}), train_on_one(kMlp));
}

TEST(PipelineStage, HoldsItsPartUnderTheModelsNames) {
  run_ranks(3, [&](comm::Communicator& communicator) {
    const Device device{DeviceType::cpu, communicator.rank()};
    const PipelineStage stage(make_net(kGpt, device), communicator, {gpipe, 2, 1, {1, 1, 1, 1, 1}});
    const auto named = stage.tensors()->named_parameters();
    const char* const first[] = {"transformer.wte.weight", "transformer.h.1.ln_1.weight",
                                 "transformer.wte.weight"};
    EXPECT_EQ(named[0].first, first[communicator.rank()]);
    EXPECT_LT(stage.tensors()->num_parameters(), make_net(kGpt, device)->num_parameters());
  });
}

TEST(PipelineStage, TheTableOfAGptStaysTheSameOnBothOfItsStages) {
  run_ranks(2, [&](comm::Communicator& communicator) {
    const Device device{DeviceType::cpu, communicator.rank()};
    PipelineStage stage(make_net(kGpt, device), communicator, {one_forward_one_backward, 4});
    run_net_steps(kGpt, *stage.tensors(), device, [&](const TrainingBatch& batch) {
      stage.run_step(batch.x, batch.labels, 0, mean_weight(batch), flat_loss);
    });
    const auto all = stage.gather(nn::state_dict(*stage.tensors()));
    if (communicator.rank() > 0) return;
    EXPECT_EQ(all[0][0].first, "transformer.wte.weight");
    EXPECT_EQ(all[1][0].first, "transformer.wte.weight");
    EXPECT_EQ(all[0][0].second.to_vector<double>(), all[1][0].second.to_vector<double>());
  });
}

TEST(PipelineStage, EvaluatesWhatTheWholeModelDoes) {
  for (const Net& net : {kMlp, kGpt}) {
    const TrainingBatch batch = make_net_batch(net, 0, Device{});
    const std::vector<double> expected =
        (*make_net(net, Device{}))(Variable(batch.x)).value().to_vector<double>();
    run_ranks(2, [&](comm::Communicator& communicator) {
      const Device device{DeviceType::cpu, communicator.rank()};
      PipelineStage stage(make_net(net, device), communicator, {interleaved, 2, 2});
      for (int i = 0; i < 2; ++i) {
        const Variable logits = stage.evaluate(batch.x.to(device));
        EXPECT_EQ(logits.defined(), communicator.rank() == 1);
        if (!logits.defined()) continue;
        EXPECT_EQ(logits.value().to_vector<double>(), expected);
      }
    });
  }
}

TEST(PipelineStage, RefusesMoreStagesThanLayers) {
  expect_error(ErrorCode::Usage, "5 stages need 5 layers or more, and the model has 4", [] {
    run_ranks(5, [](comm::Communicator& communicator) {
      const PipelineStage stage(make_net(kCnn, Device{}), communicator, {gpipe, 2});
    });
  });
  expect_error(ErrorCode::Usage, "2 stages of 3 chunks need 6 layers or more", [] {
    parallel::pipeline_plan_for({interleaved, 4, 3}, 2, 5);
  });
}

}  // namespace
}  // namespace lockstep::testing
