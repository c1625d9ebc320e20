#include "tools/check/rank_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/rng.h"
#include "engine/runtime/logical_device.h"
#include "engine/trace/counters.h"
#include "engine/trace/span.h"
#include "tools/check/differences.h"
#include "tools/check/reference_step.h"

namespace lockstep::tools {
namespace {

// The ranks wait for rank 0's reference, which takes as long as one device's step.
constexpr double kTimeoutSeconds = 600;
constexpr std::size_t kFewestDrawn = 3;
constexpr std::size_t kStepsPerDrawn = 100;
constexpr std::size_t kFew = 32;
constexpr double kHuge = 1e300;  // the norm of a gradient that has overflowed

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

// Makes a tensor readable for this process; one on the CPU is not copied.
Tensor readable(const Tensor& tensor) {
  return tensor.device().type == DeviceType::cpu ? tensor : tensor.to(Device{});
}

// All elements, without memory of the tensor's device, whose peak belongs to the run.
std::vector<double> doubles_of(const Tensor& tensor) {
  const Tensor host = readable(tensor);
  const auto copy = [](const auto& values) {
    return std::vector<double>(values.begin(), values.end());
  };
  if (host.dtype() == DType::int64) return copy(host.host<const std::int64_t>());
  if (host.dtype() == DType::float64) return copy(host.host<const double>());
  return copy(host.host<const float>());
}

// At most `count` elements, spread evenly, but not in step with any row length: some columns of a
// weight have no gradient, such as those of pixels that are always dark.
std::vector<double> elements_of(const Tensor& tensor, std::size_t count) {
  const std::size_t size = tensor.num_elements();
  if (size <= count) return tensor.to_vector<double>();
  const Tensor host = readable(tensor);
  std::vector<double> values;
  for (std::size_t i = 0; i < count; ++i) {
    const double turns = 0.6180339887498949 * static_cast<double>(i + 1);  // the golden ratio
    const auto place =
        static_cast<std::size_t>((turns - std::floor(turns)) * static_cast<double>(size));
    values.push_back(host.dtype() == DType::float64 ? host.host<const double>()[place]
                                                    : host.host<const float>()[place]);
  }
  return values;
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), 8 * a.size()) == 0;
}

// The first row of a batch that differs from the global batch, and how: "another label".
struct WrongRow {
  std::size_t place = 0;
  const char* what = nullptr;
};

std::optional<WrongRow> find_wrong_row(const TrainingTask& task, std::size_t epoch,
                                       const data::Batch& batch,
                                       const std::vector<std::size_t>& global_rows) {
  std::vector<std::size_t> rows;
  for (std::size_t i = 0; i < batch.labels.size(0); ++i) {
    rows.push_back(global_rows[std::min(batch.global_offset + i, global_rows.size() - 1)]);
  }
  const PlainBatch expected = plain_batch(task, epoch, rows);
  const auto labels = batch.labels.to_vector<std::int64_t>();
  const auto label = std::ranges::mismatch(labels, expected.labels);
  if (label.in1 != labels.end()) {
    const auto place = static_cast<std::size_t>(label.in1 - labels.begin());
    return WrongRow{place / task.data->train.labels_per_row(), "another label"};
  }
  // The device multiplied the pixels by the scale, so they may differ in the last bit.
  const double tolerance = task.dtype == DType::float64 ? 0x1p-49 : 0x1p-20;
  const std::vector<double> found = doubles_of(batch.x);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double feature = expected.features[i];
    if (std::abs(found[i] - feature) <= tolerance * feature) continue;
    return WrongRow{i / task.data->train.num_features, "other features"};
  }
  return std::nullopt;
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
      judge_(task, first_, findings_) {
  for (const auto& piece : first_.pieces(*optimizers[0])) {
    stepped_.push_back(piece.name);
    weight_decays_[piece.name] = rules::weight_decay(task.optimizer, piece.shape);
  }
  findings_.gradient_limit =
      gradient_limit(task.dtype, devices_[0].type, kernels::matmul_precision());
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
    find_change(i, step, local.statistics_before, std::exchange(local.statistics_left, {}));
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
  const std::vector<std::size_t> rows = global_rows(step);
  const std::size_t num_rows = batch.labels.size(0);
  const plan::ScatterPart planned = strategies_[local]->rows_of(rows.size());
  if (num_rows != planned.size || (num_rows > 0 && batch.global_offset != planned.offset)) {
    find(local, "rows", step, "all",
         fmt::format("the shard of {} rows begins at row {} of the global batch; the plan gives "
                     "this rank {} rows from row {}",
                     num_rows, batch.global_offset, planned.size, planned.offset));
  }
  if (batch.num_global_rows != rows.size()) {
    find(local, "rows", step, "all",
         fmt::format("the rank counts {} rows in the global batch, which has {}",
                     batch.num_global_rows, rows.size()));
  }
  if (!is_cheap_ && !is_due(step)) return;
  if (const std::optional<WrongRow> wrong =
          find_wrong_row(task_, step / task_.steps_per_epoch(), batch, rows)) {
    find(local, "rows", step, "all",
         fmt::format("row {} of the shard has {} than row {} of the global batch", wrong->place,
                     wrong->what, batch.global_offset + wrong->place));
  }
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
                        tensor.defined() ? elements_of(tensor, kFew) : std::vector<double>{});
    }
    return kept;
  }
  std::optional<Window> no_part_of_a_step;
  if (first_.is_in_parts()) no_part_of_a_step.emplace(*this);
  const auto visit = [&](const std::string& name, const Tensor& tensor) {
    std::vector<double> values = tensor.defined() ? doubles_of(tensor) : std::vector<double>{};
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
  mine.statistics_left = statistics(local);
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
                                         locals_[local].before, global_rows(0));
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
    report.from_one_device = compare_with_one_device(step, mine.before, mine.gradients);
    if (step + 1 == task_.num_steps) keep_last_state(mine.after);
  }
  return report;
}

ReferenceGradient RankChecks::reference(std::size_t step, const KeptTensors& state) {
  const std::vector<std::size_t> rows = global_rows(step);
  const std::size_t num_parts = task_.accumulate * first_.num_parts();
  return reference_gradient(task_, devices_[0], state, step, rows,
                            (rows.size() + num_parts - 1) / num_parts,
                            std::max(first_.num_averaged(), task_.loss_ranks));
}

std::string RankChecks::statistic_against_the_rule(std::size_t step, const KeptTensors& before,
                                                   const ReferenceGradient& after) {
  const KeptTensors& statistics = locals_[0].statistics_before;
  KeptTensors larger = before;
  for (const auto& [statistic, old] : statistics) {
    const auto found = std::ranges::find(larger, statistic, &KeptTensors::value_type::first);
    for (double& value : found->second) value += 1;
  }
  return tools::statistic_against_the_rule(before, after, reference(step, larger));
}

FromOneDevice RankChecks::compare_with_one_device(std::size_t step, const KeptTensors& state,
                                                  const KeptTensors& gradients) {
  const KeptTensors& statistics = locals_[0].statistics_before;
  KeptTensors with_statistics;
  if (step > task_.first_step() && !statistics.empty()) {
    with_statistics = state;
    with_statistics.insert(with_statistics.end(), statistics.begin(), statistics.end());
  }
  const KeptTensors& before = with_statistics.empty() ? state : with_statistics;
  const ReferenceGradient expected = reference(step, before);
  const double limit = findings_.gradient_limit;
  FromOneDevice compared;
  compared.check.step = step;
  compared.loss = expected.mean_loss;
  compared.loss_limit = limit * std::max(1.0, std::abs(expected.mean_loss));
  if (!std::ranges::all_of(expected.sizes, [](double size) { return size < kHuge; })) {
    compared.loss = std::nan("");
    return compared;
  }
  if (step == task_.first_step() && !statistics.empty()) {
    const std::string name = statistic_against_the_rule(step, before, expected);
    if (!name.empty()) {
      compared.failure.push_back(
          {"statistics", step, 0, name, "one device does not keep 0.9 of it and count the batch"});
      return compared;
    }
  }
  std::vector<TensorError> errors =
      errors_of(gradients, locals_[0].statistics_left, expected, limit);
  const bool sums_statistics = task_.batch_norm == parallel::BatchNormRows::all;
  if (sums_statistics || std::ranges::any_of(errors, &TensorError::is_beyond)) {
    KeptTensors off = before;
    for (auto& [name, values] : off) {
      if (weight_decays_.contains(name)) values = one_bit_off(std::move(values), task_.dtype);
    }
    const ReferenceGradient changed = reference(step, off);
    allow_amplified(errors, expected, changed);
    compared.loss_limit += kTimesOneBit * std::abs(changed.mean_loss - expected.mean_loss);
  }
  take_errors(errors, limit, compared);
  return compared;
}

void RankChecks::take_errors(const std::vector<TensorError>& errors, double limit,
                             FromOneDevice& compared) {
  const auto worst = std::ranges::max_element(errors, [](const auto& a, const auto& b) {
    return a.error / a.limit < b.error / b.limit || (std::isnan(b.error) && !std::isnan(a.error));
  });
  if (worst->is_beyond()) {
    compared.failure.push_back(
        {worst->check, compared.check.step, 0, worst->name,
         fmt::format("relative error {:.3g} against one device's on the same weights and rows, "
                     "limit {:.0e}",
                     worst->error, worst->limit)});
  }
  for (const TensorError& tensor : errors) {
    const bool is_within = !(tensor.error > limit);
    double& largest = compared.check.max_relative_error;
    if (is_within) largest = std::max(largest, tensor.error);
    compared.check.num_amplified += !is_within;
  }
}

void RankChecks::keep_last_state(KeptTensors state) {
  const KeptTensors& statistics = locals_[0].statistics_left;
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

std::vector<std::size_t> RankChecks::global_rows(std::size_t step) {
  const std::size_t num_steps = task_.steps_per_epoch();
  const std::size_t epoch = step / num_steps;
  if (epoch_of_order_ != epoch) {
    order_ = rules::epoch_order(task_, epoch);
    epoch_of_order_ = epoch;
  }
  const std::size_t begin = step % num_steps * task_.batch;
  const std::size_t end = std::min(begin + task_.batch, order_.size());
  return {order_.begin() + static_cast<std::ptrdiff_t>(begin),
          order_.begin() + static_cast<std::ptrdiff_t>(end)};
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
