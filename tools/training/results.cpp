#include "tools/training/results.h"

#include <algorithm>

#include "tools/report/step_statistics.h"
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

}  // namespace

void take_report(const TrainingTask& task, const RankModel& model, LoopReport report,
                 TrainingResult& result) {
  result.num_steps = task.num_steps;
  result.epoch_seconds = std::move(report.epoch_seconds);
  result.final_loss = report.last_epoch_loss;
  result.losses = std::move(report.losses);
  result.findings = std::move(report.findings);
  result.weights = copy_weights(*model.inner);
  require_finite(result.weights, task.num_steps);
  result.epoch_accuracy = std::move(report.epoch_accuracy);
}

void take_bytes(const std::vector<std::size_t>& comm_bytes, const std::vector<MemoryUse>& memory,
                TrainingResult& result) {
  result.comm_bytes_per_step = std::ranges::max(comm_bytes) / result.num_steps;
  const std::vector<std::size_t> before_checks =
      result.findings ? result.findings->peak_bytes_before : std::vector<std::size_t>();
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const std::size_t peak =
        std::max(memory[i].peak_bytes, i < before_checks.size() ? before_checks[i] : 0);
    result.peak_bytes.push_back(peak - std::min(peak, memory[i].held_before));
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
    result.comm_overlap.push_back(comm_overlap(steps));
    all_steps.insert(all_steps.end(), steps.begin(), steps.end());
  }
  result.step_statistics = step_statistics(all_steps);
}

}  // namespace lockstep::tools
