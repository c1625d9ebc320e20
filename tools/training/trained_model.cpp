#include "tools/training/trained_model.h"

#include "engine/autograd/grad_mode.h"
#include "engine/nn/count_correct.h"
#include "engine/nn/mlp.h"

namespace lockstep::tools {
namespace {

// A copy of the weights that later runs do not change.
nn::StateDict copy_weights(const nn::Module& model) {
  nn::StateDict copy;
  for (const auto& [name, tensor] : nn::state_dict(model)) {
    copy.emplace_back(name, tensor.to(Device{}).clone());
  }
  return copy;
}

double measure_test_accuracy(const TrainingTask& task, nn::Module& model, Device device) {
  const data::LabelledRows& test = task.data->test;
  if (test.num_rows() == 0) return 0;
  data::SamplerOptions options;
  options.num_samples = test.num_rows();
  options.batch_size = 1024;
  options.shuffle = data::Shuffle::off;
  data::DataLoader loader(
      std::shared_ptr<const data::LabelledRows>(task.data, &test),
      [options](std::uint64_t epoch) { return data::exact_batches(options, epoch); },
      {device, task.dtype, 4});
  NoGradScope no_grad;
  model.eval();
  std::size_t num_correct = 0;
  while (const std::optional<data::Batch> batch = loader.next()) {
    const Tensor logits = model(Variable(batch->x)).value();
    num_correct += nn::count_correct(logits, batch->labels);
  }
  model.train();
  return static_cast<double>(num_correct) / static_cast<double>(test.num_rows());
}

}  // namespace

std::shared_ptr<nn::Module> make_model(const TrainingTask& task, Device device) {
  const std::shared_ptr<nn::Module> model = nn::make_mlp(task.model, task.seed, task.dtype);
  if (task.initial_weights) nn::load_state_dict(*model, *task.initial_weights);
  model->to(device);
  return model;
}

void take_results(const TrainingTask& task, const RankModel& model, RankReport report,
                  TrainingResult& result) {
  result.epoch_seconds = std::move(report.epoch_seconds);
  result.final_loss = report.last_epoch_loss;
  result.findings = std::move(report.findings);
  result.weights = copy_weights(*model.inner);
  result.test_accuracy = measure_test_accuracy(task, *model.inner, model.devices[0]);
}

}  // namespace lockstep::tools
