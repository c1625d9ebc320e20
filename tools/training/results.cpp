#include "tools/training/results.h"

#include <algorithm>

#include "engine/autograd/grad_mode.h"
#include "engine/data/data_loader.h"
#include "engine/nn/count_correct.h"
#include "tools/report/busy_fraction.h"
#include "tools/training/losses.h"

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

void take_report(const TrainingTask& task, const RankModel& model, LoopReport report,
                 TrainingResult& result) {
  result.num_steps = task.num_steps;
  result.epoch_seconds = std::move(report.epoch_seconds);
  result.final_loss = report.last_epoch_loss;
  result.findings = std::move(report.findings);
  result.weights = copy_weights(*model.inner);
  require_finite(result.weights, task.num_steps);
  result.test_accuracy = measure_test_accuracy(task, *model.inner, model.devices[0]);
}

void take_bytes(const std::vector<std::size_t>& comm_bytes, std::vector<std::size_t> peak_bytes,
                TrainingResult& result) {
  result.comm_bytes_per_step = std::ranges::max(comm_bytes) / result.num_steps;
  result.peak_bytes = std::move(peak_bytes);
  if (!result.findings) return;
  const std::vector<std::size_t>& before_checks = result.findings->peak_bytes_before;
  for (std::size_t i = 0; i < before_checks.size(); ++i) {
    result.peak_bytes[i] = std::max(result.peak_bytes[i], before_checks[i]);
  }
}

void take_times(const trace::Recording& recording, const std::vector<int>& tracks,
                TrainingResult& result) {
  if (recording.spans.empty()) return;
  result.breakdown = trace::median_step(recording.spans, tracks.front());
  std::vector<trace::StepBreakdown> all_steps;
  for (const int track : tracks) {
    result.busy_fraction.push_back(busy_fraction(recording, track));
    const auto steps = trace::step_breakdowns(recording.spans, track);
    result.comm_overlap.push_back(trace::comm_overlap(steps));
    all_steps.insert(all_steps.end(), steps.begin(), steps.end());
  }
  result.step_statistics = trace::step_statistics(all_steps);
}

}  // namespace lockstep::tools
