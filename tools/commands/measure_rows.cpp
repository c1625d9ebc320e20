// Measures and judges the rows of `compare`.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "engine/nn/state_dict.h"
#include "engine/runtime/logical_device.h"
#include "kernels/matmul_precision.h"
#include "tools/commands/compare_rows.h"
#include "tools/commands/process_rows.h"
#include "tools/commands/train_report.h"
#include "tools/record/measured_row.h"
#include "tools/run/interruption.h"
#include "tools/run/placement.h"
#include "tools/show/row_table.h"
#include "tools/text/format.h"
#include "tools/text/status_line.h"

namespace lockstep::tools {
namespace {

constexpr double kFirstWarmUpSeconds = 0.5;

// One device of the row's kind.
DevicePlacement single_placement(const PlannedRow& planned) {
  return {Mode::single, {Device{planned.placement.devices[0].type, 0}}};
}

RunRow run_row(const PlannedRow& planned, const TrainingFlags& flags,
               const TrainingObserver& observer, double warm_up_seconds) {
  const DevicePlacement& placement = planned.placement;
  if (has_processes(flags, placement)) return run_process_row(flags, planned);
  apply_threads_per_device(flags, placement.devices.size());
  warm_up(planned.task, placement, warm_up_seconds);
  RunRow row = measure_row(planned.task, placement, observer, Recorded::yes).row;
  throw_if_interrupted();
  return row;
}

// Makes runs that no row shows: one device with the batches of a row whose baseline has others, or
// in the row's shares, and rows in another precision. They use all cores, because their time does
// not count.
class Repeater {
 public:
  Repeater(const TrainingFlags& flags, TrainingObserver observer)
      : flags_(flags), observer_(std::move(observer)) {}

  void add(const PlannedRow& planned, const TrainingResult& single) {
    singles_[key(planned, planned.task)] = single;
  }

  // One device's result of a task.
  const TrainingResult& single(const PlannedRow& planned, const TrainingTask& task) {
    const auto [found, is_new] = singles_.try_emplace(key(planned, task));
    if (is_new) found->second = train_single(planned, task);
    return found->second;
  }

  Repeats repeats_of(const PlannedRow& planned) {
    return {[this, &planned](DType dtype, std::size_t num_steps) {
              const TrainingTask task = in_dtype(dtype, num_steps, planned.task);
              return distance(keep(single(planned, task).weights), row(planned, task));
            },
            [this, &planned](DType dtype, std::size_t num_steps) {
              TrainingTask task = in_dtype(dtype, num_steps, planned.task);
              const KeptTensors expected = keep(single(planned, task).weights);
              task.initial_weights = off_by_one_bit(nn::state_dict(*make_model(task, Device{})));
              return distance(expected, keep(train_single(planned, task).weights));
            }};
  }

  // The same for a row that is interrupted.
  Repeats repeats_of_resumed(const PlannedRow& planned) {
    Repeats repeats = repeats_of(planned);
    repeats.row = [this, &planned](DType dtype, std::size_t num_steps) {
      PlannedRow other = planned;
      other.task = in_dtype(dtype, num_steps, planned.task);
      TrainingFlags flags = flags_;
      flags.dtype = lockstep::to_string(dtype);
      return distance(keep(single(planned, other.task).weights),
                      keep(run_resumed_row(flags, other).result.weights));
    };
    return repeats;
  }

 private:
  using Key = std::tuple<DType, std::size_t, std::size_t, std::size_t, std::size_t>;

  // One device that takes the row's shares where batch norm takes their statistics, and scales its
  // loss as they do where another factor than a power of two rounds in another way.
  static TrainingTask as_the_row(const PlannedRow& planned, TrainingTask task) {
    const std::size_t num_devices = planned.placement.devices.size();
    const bool has_shares = task.has_own_statistics();
    const bool is_bf16 = kernels::matmul_precision() == kernels::MatmulPrecision::bf16;
    const bool scales_loss = has_ranks(planned.placement.mode) && !task.pipeline &&
                             !std::has_single_bit(num_devices) && (has_shares || is_bf16);
    task.num_shares = has_shares ? num_devices : 1;
    task.loss_ranks = scales_loss ? num_devices : 1;
    return task;
  }

  static Key key(const PlannedRow& planned, const TrainingTask& task) {
    const TrainingTask single = as_the_row(planned, task);
    return {task.dtype, task.num_steps, task.batch, single.num_shares, single.loss_ranks};
  }

  static TrainingTask in_dtype(DType dtype, std::size_t num_steps, TrainingTask task) {
    task.dtype = dtype;
    task.num_steps = num_steps;
    return task;
  }

  static nn::StateDict off_by_one_bit(nn::StateDict weights) {
    for (auto& [name, tensor] : weights) {
      if (tensor.dtype() == DType::int64) continue;
      const std::vector<double> values = one_bit_off(tensor.to_vector<double>(), tensor.dtype());
      tensor = Tensor::from(values, tensor.shape(), Device{}).to(tensor.dtype());
    }
    return weights;
  }

  TrainingResult train_single(const PlannedRow& planned, TrainingTask task) const {
    TrainingFlags all_cores = flags_;
    all_cores.threads_per_device.reset();
    apply_threads_per_device(all_cores, 1);
    task.slow_motion = nullptr;
    Run run = train(as_the_row(planned, task), single_placement(planned), observer_);
    throw_if_interrupted();
    return std::move(run.result);
  }

  // The row's weights under a task.
  KeptTensors row(const PlannedRow& planned, TrainingTask task) const {
    if (has_processes(flags_, planned.placement)) {
      TrainingFlags flags = flags_;
      flags.dtype = lockstep::to_string(task.dtype);
      flags.trace_path.clear();
      const RunRow row = run_process_row(flags, planned);
      return task.num_steps == planned.task.num_steps ? keep(row.result.weights)
                                                      : row.result.findings->first_weights;
    }
    apply_threads_per_device(flags_, planned.placement.devices.size());
    task.slow_motion = nullptr;
    KeptTensors weights = keep(train(task, planned.placement).result.weights);
    throw_if_interrupted();
    return weights;
  }

  const TrainingFlags& flags_;
  TrainingObserver observer_;
  std::map<Key, TrainingResult> singles_;
};

// "4 and 8 devices share 2 cores: below, overhead only": the numbers in the rows from `first` on,
// up to the next group.
std::string sharing_line(const std::vector<PlannedRow>& plan, std::size_t first,
                         const TrainingFlags& flags) {
  std::set<std::size_t> counts;
  for (std::size_t i = first; i < plan.size(); ++i) {
    if (i > first && plan[i].placement.mode == Mode::single) break;
    counts.insert(plan[i].placement.devices.size());
  }
  std::string names;
  for (const std::size_t count : counts) {
    names += fmt::format("{}{}",
                         names.empty()               ? ""
                         : count == *counts.rbegin() ? " and "
                                                     : ", ",
                         count);
  }
  const std::size_t threads = threads_per_device(flags, *counts.rbegin());
  return fmt::format("{} device{}{} share{} {}: below, overhead only", names,
                     names == "1" ? "" : "s",
                     threads == 1 ? "" : fmt::format(" with {} threads each", threads),
                     names == "1" ? "s" : "", count_text(runtime::num_cores(), "core"));
}

// Measures the last row and its baseline again, one right after the other, because the row was
// faster than its hardware explains. Returns the first row whose figures change: the baseline, if
// it was faster this time.
std::size_t measure_again(const std::vector<PlannedRow>& plan, const TrainingFlags& flags,
                          std::vector<RunRow>& rows) {
  const std::size_t index = rows.size() - 1;
  const std::size_t baseline = baseline_of(rows, index);
  TrainingFlags of_row = flags;
  if (index + 1 < plan.size()) of_row.trace_path.clear();
  const auto replace = [](RunRow& row, RunRow again) {
    again.verdict = row.verdict;
    again.max_abs_weight_diff = row.max_abs_weight_diff;
    again.measured_again = true;
    row = std::move(again);
  };
  RunRow again = run_row(plan[baseline], of_row, {}, 0);
  replace(rows[index], run_row(plan[index], of_row, {}, 0));
  if (again.median_epoch_seconds() >= rows[baseline].median_epoch_seconds()) return index;
  replace(rows[baseline], std::move(again));
  return baseline;
}

Progress make_progress(const std::vector<PlannedRow>& plan, const TrainingFlags& flags) {
  std::vector<Progress::Row> rows;
  for (const PlannedRow& row : plan) {
    const std::string mode(to_string(row.placement.mode));
    const std::size_t num_devices = row.placement.devices.size();
    rows.push_back({num_devices == 1 ? mode : fmt::format("{} x{}", mode, num_devices),
                    has_processes(flags, row.placement) ? 0 : row.task.num_steps});
  }
  return Progress(std::move(rows));
}

// single: one device with the row's batches.
void judge_row(const PlannedRow& planned, const TrainingResult& single, const Repeats& repeats,
               RunRow& row) {
  row.max_abs_weight_diff =
      distance(keep(single.weights), keep(row.result.weights)).parameters.value;
  row.verdict = judge(planned.task, single, row.result, repeats);
}

// --interrupt: the table's last row, stopped and resumed.
RunRow interrupted_row(const PlannedRow& planned, const TrainingFlags& flags, Repeater& repeater,
                       std::FILE* out) {
  RunRow row = run_resumed_row(flags, planned);
  judge_row(planned, repeater.single(planned, planned.task), repeater.repeats_of_resumed(planned),
            row);
  print_wrapped(out,
                fmt::format("{} x{}, stopped after step {} of {} and resumed in a new process: "
                            "drift {:.1e}",
                            to_string(planned.placement.mode), planned.placement.devices.size(),
                            *row.resumed_after, planned.task.num_steps, row.max_abs_weight_diff));
  return row;
}

// Throws Interrupted; then the last row may lack its verdict.
void measure_each(const std::vector<PlannedRow>& plan, const CompareFlags& flags, std::FILE* out,
                  MeasuredRows& measured);

}  // namespace

MeasuredRows measure_rows(const std::vector<PlannedRow>& plan, const CompareFlags& flags,
                          std::FILE* out) {
  MeasuredRows measured;
  try {
    measure_each(plan, flags, out, measured);
  } catch (const Interrupted&) {
    std::vector<RunRow>& rows = measured.rows;
    if (!rows.empty() && !rows.back().verdict) rows.pop_back();
  }
  return measured;
}

namespace {

void measure_each(const std::vector<PlannedRow>& plan, const CompareFlags& flags, std::FILE* out,
                  MeasuredRows& measured) {
  std::vector<RunRow>& rows = measured.rows;
  const TableWidth width = flags.wide ? TableWidth::wide : TableWidth::terminal;
  auto warn = warn_of_explosion(plan[0].task.data->train.num_classes);  // once for all rows
  TrainingObserver observer;
  // If rows are judged, the verdict tells of an explosion.
  if (plan[0].task.sampler == Sampler::torch) observer.on_loss = std::ref(warn);
  observer.checks = Checks::on;
  Repeater repeater(flags.training, observer);
  Progress progress = make_progress(plan, flags.training);
  if (!flags.training.live) observer.on_step = progress.observer();  // else the lanes show it
  fmt::print(out, "{}\n", table_header(width));
  std::fflush(out);
  for (const PlannedRow& planned : plan) {
    const bool is_single = planned.placement.mode == Mode::single;
    if (is_single && planned.rows_per_device) {
      fmt::print(out, "{} rows a device\n", *planned.rows_per_device);
    }
    const std::size_t index = rows.size();
    if (shares_cores(planned, flags.training) &&
        (is_single || !shares_cores(plan[index - 1], flags.training))) {
      print_wrapped(out, sharing_line(plan, index, flags.training));
    }
    progress.begin_row();
    TrainingFlags of_row = flags.training;
    if (&planned != &plan.back()) of_row.trace_path.clear();  // the timeline is the last row's
    // All other rows are compared with the first, which finds a cold machine, so it is warmed up.
    rows.push_back(run_row(planned, of_row, observer, rows.empty() ? kFirstWarmUpSeconds : 0));
    if (is_single) repeater.add(planned, rows.back().result);
    RunRow& row = rows.back();
    judge_row(planned, repeater.single(planned, planned.task), repeater.repeats_of(planned), row);
    row.compare_with(rows[baseline_of(rows, index)], runtime::num_cores());
    const double first_efficiency = row.efficiency.value_or(0);
    const bool is_again = row.is_too_efficient() && !row.result.simulated;
    const std::size_t changed = is_again ? measure_again(plan, flags.training, rows) : index;
    progress.end_row();
    if (is_again) {
      print_wrapped(out,
                    fmt::format("{} x{} came out {:.0f} % efficient, so it and one device were "
                                "measured again:",
                                to_string(planned.placement.mode), planned.placement.devices.size(),
                                100 * first_efficiency));
    }
    for (std::size_t i = changed; i <= index; ++i) {
      rows[i].compare_with(rows[baseline_of(rows, i)], runtime::num_cores());
      fmt::print(out, "{}\n", table_line(rows[i], width));
    }
    std::fflush(out);
  }
  if (flags.interrupt) {
    measured.resumed = interrupted_row(plan.back(), flags.training, repeater, out);
  }
}

}  // namespace

void explain_drift(const std::vector<PlannedRow>& plan, const TrainingFlags& flags,
                   const std::vector<RunRow>& rows, std::FILE* out) {
  fmt::print(out, "drift of the weights after {} steps, and what float64 gives:\n",
             plan[0].task.num_steps);
  fmt::print(out, "{:<7}{:>8}{:>11}{:>11}\n", "mode", "devices", "float32", "float64");
  Repeater repeater(flags, {});
  double in_float32 = 0;
  double in_float64 = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& [placement, task, rows_per_device, is_missing] = plan[i];
    if (placement.mode == Mode::single) continue;
    const std::optional<double>& known = rows[i].verdict->repeated_drift;
    const double repeated =
        known ? *known
              : repeater.repeats_of(plan[i]).row(DType::float64, task.num_steps).parameters.value;
    in_float32 = std::max(in_float32, rows[i].max_abs_weight_diff);
    in_float64 = std::max(in_float64, repeated);
    fmt::print(out, "{:<9}{:>6}{:>11.1e}{:>11.1e}\n", to_string(placement.mode),
               placement.devices.size(), rows[i].max_abs_weight_diff, repeated);
    std::fflush(out);
  }
  const bool vanishes = in_float64 * kShrinksByRounding <= in_float32;
  fmt::print(out, "{}\n",
             in_float32 == 0 ? "no row drifted"
             : vanishes
                 ? "with 29 more bits the drift all but vanishes: it is rounding, not the engine"
                 : "float64 drifts, too, but within the limit");
}

}  // namespace lockstep::tools
