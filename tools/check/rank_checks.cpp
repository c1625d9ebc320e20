#include "tools/check/rank_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "engine/core/rng.h"
#include "engine/runtime/logical_device.h"
#include "engine/trace/counters.h"
#include "engine/trace/span.h"
#include "tools/check/differences.h"
#include "tools/check/elements.h"

namespace lockstep::tools {
namespace {

// The ranks wait for rank 0's reference, which takes as long as one device's step.
constexpr double kTimeoutSeconds = 600;
constexpr std::size_t kFewestDrawn = 3;
constexpr std::size_t kStepsPerDrawn = 100;

std::set<std::size_t> choose_steps(const TrainingTask& task) {
  std::set<std::size_t> steps{task.first_step(), task.num_steps - 1};
  for (std::size_t end = task.steps_per_epoch(); end < task.num_steps;
       end += task.steps_per_epoch()) {
    steps.insert(end - 1);
  }
  if (task.num_steps <= kFirstSteps) return steps;
  steps.insert(kFirstSteps);
  Rng rng(task.seed);
  const std::size_t num_drawn = std::max(kFewestDrawn, task.num_steps / kStepsPerDrawn);
  for (std::size_t i = 0; i < num_drawn; ++i) {
    steps.insert(kFirstSteps + rng.below(task.num_steps - kFirstSteps));
  }
  return steps;
}

}  // namespace

// While one lives, nothing counts as part of the run: neither its bytes nor its memory. The
// timeline shows one span "check", outside of any step.
class RankChecks::Window {
 public:
  explicit Window(const RankChecks& checks)
      : checks_(checks),
        span_(trace::Lane::host, trace::Category::host, "check"),
        uncounted_(tracks_of(checks)) {
    for (const Device device : checks.devices_) {
      peaks_.push_back(memory(device).statistics().peak_bytes);
    }
    comm::Communicator* const communicator = checks.first_.communicator();
    if (!communicator) return;
    timeout_seconds_ = communicator->timeout_seconds();
    communicator->set_timeout_seconds(std::max(timeout_seconds_, kTimeoutSeconds));
  }
  ~Window() {
    for (std::size_t i = 0; i < peaks_.size(); ++i) {
      memory(checks_.devices_[i]).reset_peak(peaks_[i]);
    }
    comm::Communicator* const communicator = checks_.first_.communicator();
    if (communicator) communicator->set_timeout_seconds(timeout_seconds_);
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

 private:
  // The tracks under which bytes are counted: ranks of DDP, or devices of DataParallel.
  static std::vector<int> tracks_of(const RankChecks& checks) {
    std::vector<int> tracks;
    for (const auto& strategy : checks.strategies_) tracks.push_back(strategy->rank());
    for (const Device device : checks.devices_) {
      if (checks.strategies_.size() < checks.devices_.size()) tracks.push_back(device.index);
    }
    return tracks;
  }
  static runtime::MemoryPool& memory(Device device) {
    return runtime::logical_device(device).memory();
  }

  const RankChecks& checks_;
  trace::ScopedSpan span_;
  trace::UntracedScope untraced_;
  trace::UncountedScope uncounted_;
  std::vector<std::size_t> peaks_;  // indexed by device
  double timeout_seconds_ = 0;
};

std::unique_ptr<StepChecks> make_step_checks(const TrainingTask& task, const Strategies& strategies,
                                             const Optimizers& optimizers) {
  return std::make_unique<RankChecks>(task, strategies, optimizers);
}

std::optional<Finding> RankChecks::wrong_resumption(const std::vector<data::Batch>& batches) {
  for (std::size_t i = 0; i < locals_.size(); ++i) {
    if (is_exact_) look_at_rows(i, task_.first_step(), batches[i]);
    look_at_schedule(i, task_.first_step());
    const std::vector<Finding>& findings = locals_[i].report.findings;
    if (!findings.empty()) return findings.front();
  }
  return std::nullopt;
}

RankChecks::RankChecks(const TrainingTask& task, const Strategies& strategies,
                       const Optimizers& optimizers)
    : task_(task),
      strategies_(strategies),
      first_(*strategies[0]),
      optimizers_(optimizers),
      devices_(devices_of(strategies)),
      due_(choose_steps(task)),
      is_exact_(task.sampler == Sampler::exact),
      is_cheap_(devices_[0].type == DeviceType::cpu && !task.slow_motion),
      has_stepped_(task.resumed != nullptr),
      locals_(strategies.size()),
      rows_(task),
      one_device_(task, first_, devices_[0], rows_,
                  gradient_limit(task.dtype, devices_[0].type, kernels::matmul_precision())),
      judge_(task, first_, findings_) {
  for (const auto& piece : first_.pieces(*optimizers[0])) {
    stepped_.push_back(piece.name);
    weight_decays_[piece.name] = rules::weight_decay(task.optimizer, piece.shape);
  }
  findings_.gradient_limit = one_device_.limit();
  findings_.num_first_steps = std::min(kFirstSteps, task.num_steps);
  // Shards add up the means of micro-batches, and a pipeline and --bitwise reduce in other ways.
  const bool is_mean = !first_.is_loss_global() && !(first_.is_in_parts() && task.accumulate > 1);
  for (std::size_t i = 0; i < locals_.size() && is_cheap_ && is_mean; ++i) {
    locals_[i].parts = std::make_unique<GradientParts>(strategies[i]->module()->named_parameters());
  }
}

void RankChecks::before_step(std::size_t step) {
  if (step == task_.first_step()) initial_ = weights();
  for (std::size_t i = 0; i < locals_.size() && is_read(step); ++i) {
    Local& local = locals_[i];
    local.before = state_of(i, step, Elements::few);
    find_change(i, step, local.before, std::exchange(local.left, {}));
    if (is_due(step)) local.before = state_of(i, step, Elements::all);
    local.statistics_before = statistics(i);
    find_change(i, step, local.statistics_before, std::exchange(local.statistics_after, {}));
    if (step > task_.first_step()) continue;
    const KeptTensors buffers = keep_buffers(*strategies_[i]->module());
    local.before.insert(local.before.end(), buffers.begin(), buffers.end());
  }
}

KeptTensors RankChecks::statistics(std::size_t local) const {
  const parallel::Strategy& strategy = *strategies_[local];
  return strategy.rank() == 0 ? keep_buffers(*strategy.module()) : KeptTensors();
}

void RankChecks::after_clearing(std::size_t step) {
  for (std::size_t i = 0; i < locals_.size(); ++i) {
    if (locals_[i].parts) locals_[i].parts->begin(step);
    const std::vector<Variable>& parameters = optimizers_[i]->parameters();
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      if (!parameters[p].grad().defined()) continue;
      find(i, "gradients", step, stepped_[p], "the previous step's gradient was not cleared");
    }
  }
}

void RankChecks::take_loss(std::size_t local, const StepLoss& loss) {
  Local& mine = locals_[local];
  mine.report.losses.push_back(loss);
  mine.report.epoch_loss.sum += loss.sum;
  mine.report.epoch_loss.num_rows += loss.num_rows;
}

void RankChecks::after_step(std::size_t step, const std::vector<data::Batch>& batches) {
  const bool is_due_now = is_due(step);
  std::optional<Window> window;
  if (is_due_now) window.emplace(*this);
  std::vector<RankReport> reports;
  for (std::size_t i = 0; i < locals_.size(); ++i) {
    if (is_exact_) look_at_rows(i, step, batches[i]);
    look_at_schedule(i, step);
    if (is_cheap_ || is_due_now) look_at_update(i, step);
    if (locals_[i].parts) {
      locals_[i].report.parts.push_back(
          locals_[i].parts->end(strategies_[i]->pieces(*optimizers_[i])));
    }
    if (step == 0) look_at_differences(i);
    if (is_due_now) reports.push_back(report_of(i, step));
  }
  if (is_due_now) {
    judge_.judge(step, exchange(std::move(reports)), locals_[0]);
    for (Local& local : locals_) {
      local.report.losses.clear();
      local.report.parts.clear();
    }
  }
  if (step + 1 == findings_.num_first_steps || step + 1 == task_.num_steps) keep_weights(step + 1);
  if (step + 1 == task_.num_steps) findings_.losses = judge_.losses();
}

KeptTensors RankChecks::weights() const {
  if (first_.is_in_parts()) {
    const Window no_part_of_a_step(*this);
    return keep(first_.state_dict());
  }
  if (first_.rank() != 0) return {};
  return keep(nn::state_dict(*first_.module()));
}

void RankChecks::keep_weights(std::size_t num_steps) {
  const KeptTensors now = weights();
  if (first_.rank() != 0) return;
  findings_.movement = largest_difference(initial_, now).value;
  if (num_steps != findings_.num_first_steps) return;
  findings_.first_movement = findings_.movement;
  findings_.first_weights = now;
}

void RankChecks::look_at_rows(std::size_t local, std::size_t step, const data::Batch& batch) {
  const std::size_t num_rows = rows_.of_step(step).size();
  auto wrong = PlannedRows::wrong_place(batch, strategies_[local]->rows_of(num_rows), num_rows);
  if (!wrong && (is_cheap_ || is_due(step))) wrong = rows_.wrong_row(batch, step);
  if (wrong) find(local, "rows", step, "all", *wrong);
}

void RankChecks::look_at_schedule(std::size_t local, std::size_t step) {
  const optim::Optimizer& optimizer = *optimizers_[local];
  const double expected = rules::learning_rate(task_.optimizer, step);
  // The end of a cosine is a small difference of numbers as large as the first rate.
  const double tolerance = 1e-12 * std::max(expected, task_.optimizer.learning_rate);
  if (!(std::abs(optimizer.learning_rate() - expected) <= tolerance)) {
    find(local, "schedule", step, "all",
         fmt::format("the learning rate is {:.6g}, the schedule says {:.6g}",
                     optimizer.learning_rate(), expected));
  }
  for (std::size_t p = 0; p < stepped_.size(); ++p) {
    const std::uint64_t counted = optimizer.state(p).num_steps;
    if (counted == step + 1) continue;
    find(local, "schedule", step, stepped_[p],
         fmt::format("the optimizer counts {} steps, the run {}", counted, step + 1));
  }
}

KeptTensors RankChecks::read(std::size_t local, std::size_t step, Elements elements,
                             const TensorOf& tensor_of, const std::string& suffix) {
  KeptTensors kept;
  if (elements == Elements::few) {
    for (std::size_t p = 0; p < stepped_.size(); ++p) {
      const Tensor tensor = tensor_of(p);  // undefined without a gradient so far
      kept.emplace_back(stepped_[p] + suffix,
                        tensor.defined() ? few_elements(tensor) : std::vector<double>{});
    }
    return kept;
  }
  std::optional<Window> no_part_of_a_step;
  if (first_.is_in_parts()) no_part_of_a_step.emplace(*this);
  const auto visit = [&](const std::string& name, const Tensor& tensor) {
    std::vector<double> values = tensor.defined() ? all_elements(tensor) : std::vector<double>{};
    if (suffix.empty() && tensor.defined()) {
      weight_decays_.try_emplace(name, rules::weight_decay(task_.optimizer, tensor.shape()));
    }
    const auto twin = std::ranges::find(kept, name + suffix, &KeptTensors::value_type::first);
    if (twin == kept.end()) {
      kept.emplace_back(name + suffix, std::move(values));
    } else if (!same_bits(twin->second, values)) {
      find(local, "replicas", step, name, "the stages that share it hold different bits");
    }
  };
  const parallel::Strategy& strategy = *strategies_[local];
  strategy.gather(by_piece(strategy, *optimizers_[local], tensor_of), visit);
  return kept;
}

KeptTensors RankChecks::state_of(std::size_t local, std::size_t step, Elements elements) {
  const optim::Optimizer& optimizer = *optimizers_[local];
  KeptTensors kept = read(
      local, step, elements, [&](std::size_t p) { return optimizer.parameters()[p].value(); }, "");
  // No step was made yet on any rank, or on all.
  const std::size_t num_states = has_stepped_ ? num_state_tensors(task_.optimizer) : 0;
  for (std::size_t i = 0; i < num_states; ++i) {
    const auto state = [&](std::size_t p) {
      const std::vector<Tensor> tensors = optimizer.state(p).tensors;
      return i < tensors.size() ? tensors[i] : Tensor();
    };
    const KeptTensors states = read(local, step, elements, state, state_suffix(task_.optimizer, i));
    kept.insert(kept.end(), states.begin(), states.end());
  }
  return kept;
}

KeptTensors RankChecks::gradients_of(std::size_t local, std::size_t step, Elements elements) {
  const std::vector<Variable>& parameters = optimizers_[local]->parameters();
  return read(
      local, step, elements, [&](std::size_t p) { return parameters[p].grad(); }, "");
}

void RankChecks::look_at_update(std::size_t local, std::size_t step) {
  Local& mine = locals_[local];
  const Elements elements = is_due(step) ? Elements::all : Elements::few;
  has_stepped_ = true;
  mine.gradients = gradients_of(local, step, elements);
  mine.after = state_of(local, step, elements);
  mine.left = is_due(step) ? state_of(local, step, Elements::few) : mine.after;
  mine.statistics_after = statistics(local);
  const double learning_rate = rules::learning_rate(task_.optimizer, step);
  for (const auto& [name, gradient] : mine.gradients) {
    const auto wrong = find_wrong_element(
        task_.optimizer, {step, learning_rate, weight_decays_.at(name), task_.dtype}, name,
        mine.before, mine.gradients, mine.after);
    if (!wrong) continue;
    find(local, "update", step, wrong->tensor,
         fmt::format("the optimizer's formula gives {:.9g} from the same state and gradient, the "
                     "run {:.9g}",
                     wrong->expected, wrong->found));
  }
}

void RankChecks::look_at_differences(std::size_t local) {
  const bool is_one_device = devices_.size() == 1 && first_.num_ranks() == 1;
  // A model in parts has no forward pass of its own; the row of one device has looked at its
  // layers.
  if (!is_one_device || !is_exact_ || first_.is_in_parts()) return;
  const auto wrong = find_wrong_gradient(task_, *first_.module(), devices_[0],
                                         locals_[local].before, rows_.of_step(0));
  if (!wrong) return;
  find(local, "differences", 0, wrong->parameter,
       fmt::format("along a random direction the loss changes by {:.6g}, but its gradient says "
                   "{:.6g}",
                   wrong->by_difference, wrong->by_gradient));
}

void RankChecks::find_change(std::size_t local, std::size_t step, const KeptTensors& found,
                             const KeptTensors& expected) {
  for (const auto& [name, values] : expected) {
    const std::vector<double>& its = values_of(found, name);
    if (same_bits(its, values)) continue;
    find(local, "update", step, name,
         fmt::format("it changed between the previous step and this one: {:.3g} apart",
                     largest_difference({{name, its}}, {{name, values}}).value));
  }
}

RankReport RankChecks::report_of(std::size_t local, std::size_t step) {
  Local& mine = locals_[local];
  RankReport report = mine.report;
  for (const auto& [list, kept] :
       {std::pair(&report.before, &mine.before), std::pair(&report.gradients, &mine.gradients),
        std::pair(&report.after, &mine.after)}) {
    if (first_.num_ranks() == 1) break;
    for (const auto& [name, values] : *kept) list->push_back(digest(values));
  }
  if (strategies_[local]->rank() == 0 && is_exact_) {
    report.from_one_device = one_device_.compare(step, mine);
    if (step + 1 == task_.num_steps) keep_last_state(mine.after);
  }
  return report;
}

void RankChecks::keep_last_state(KeptTensors state) {
  const KeptTensors& statistics = locals_[0].statistics_after;
  state.insert(state.end(), statistics.begin(), statistics.end());
  for (const auto& [name, tensor] : nn::state_dict(*make_model(task_, Device{}))) {
    std::vector<double> values = values_of(state, name);
    values.resize(tensor.num_elements());  // a state dict leaves a table's padding out
    findings_.last_state.emplace_back(name, digest(values));
  }
  if (task_.data->test.num_rows() == 0) return;
  findings_.test_result = test_result(task_, devices_[0], state);
}

void RankChecks::find(std::size_t local, const char* check, std::size_t step,
                      const std::string& parameter, std::string what) {
  std::vector<Finding>& findings = locals_[local].report.findings;
  if (!findings.empty()) return;
  findings.push_back({check, step, strategies_[local]->rank(), parameter, std::move(what)});
}

std::vector<RankReport> RankChecks::exchange(std::vector<RankReport> mine) const {
  comm::Communicator* const communicator = first_.communicator();
  if (!communicator) return mine;
  const std::vector<std::uint8_t> bytes = nlohmann::json::to_cbor(nlohmann::json(mine[0]));
  const std::vector<std::int64_t> sizes =
      comm::gather_numbers({static_cast<std::int64_t>(bytes.size())}, *communicator);
  const auto num_words = static_cast<std::size_t>(std::ranges::max(sizes) + 7) / 8;
  std::vector<std::int64_t> words(num_words);
  std::memcpy(words.data(), bytes.data(), bytes.size());
  const std::vector<std::int64_t> all = comm::gather_numbers(words, *communicator);
  std::vector<RankReport> reports;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    const auto* const begin = reinterpret_cast<const std::uint8_t*>(all.data() + rank * num_words);
    reports.push_back(nlohmann::json::from_cbor(begin, begin + sizes[rank]).get<RankReport>());
  }
  return reports;
}

void RankChecks::after_epoch(std::size_t last_step, double mean_loss) {
  for (Local& local : locals_) local.report.epoch_loss = {};
  judge_.judge_epoch(last_step, mean_loss);
}

}  // namespace lockstep::tools
