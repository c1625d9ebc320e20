#include "tools/measure_rows.h"

#include <fmt/format.h>

#include <functional>
#include <map>
#include <utility>

#include "engine/trace/recorder.h"
#include "tools/process_rows.h"
#include "tools/report/bound.h"
#include "tools/report/contention.h"
#include "tools/report/row_table.h"
#include "tools/report/status_line.h"
#include "tools/report/train_report.h"
#include "tools/training/placement.h"
#include "tools/training/ranks.h"

namespace lockstep::tools {

bool has_processes(const TrainingFlags& flags, const DevicePlacement& placement) {
  return flags.ranks == "processes" && placement.mode == Mode::ddp;
}

namespace {

// All devices of the row are this process's own.
RunRow run_row_here(const PlannedRow& planned, const TrainingFlags& flags,
                    TrainingObserver observer) {
  const DevicePlacement& placement = planned.placement;
  apply_threads_per_device(flags, placement.devices.size());
  warm_up(planned.task, placement);
  RunRow row = planned_row(planned.task, placement);
  ContentionProbe probe(placement.devices);
  probe.sample();
  observer.on_epoch = [&probe](std::size_t, double, double) { probe.sample(); };
  trace::start();
  row.result = train(planned.task, placement, observer);
  trace::stop();
  row.contended = row.result.acted
                      ? row.result.acted->put_off > kNotablePutOff
                      : probe.verdict(row.threads_per_device * placement.devices.size());
  return row;
}

// One device of the kind that the row is on.
DevicePlacement single_placement(const PlannedRow& planned) {
  return {Mode::single, {Device{planned.placement.devices[0].type, 0}}};
}

// The same row in another dtype: its weights after so many steps.
nn::StateDict weights_in(DType dtype, std::size_t num_steps, const TrainingTask& task,
                         TrainingFlags flags, const DevicePlacement& placement) {
  if (has_processes(flags, placement)) {
    flags.dtype = lockstep::to_string(dtype);
    flags.trace_path.clear();
    const RunRow row = run_process_row(std::move(flags), placement, task.batch);
    return num_steps == task.num_steps ? row.result.weights
                                       : to_state_dict(row.result.findings->first_weights);
  }
  apply_threads_per_device(flags, placement.devices.size());
  TrainingTask repeated = task;
  repeated.slow_motion = nullptr;
  repeated.dtype = dtype;
  repeated.num_steps = num_steps;
  return train(repeated, placement).weights;
}

double difference_in(DType dtype, std::size_t num_steps, const TrainingTask& task,
                     const TrainingFlags& flags, const DevicePlacement& single,
                     const DevicePlacement& placement) {
  return largest_difference(keep(weights_in(dtype, num_steps, task, flags, single)),
                            keep(weights_in(dtype, num_steps, task, flags, placement)))
      .value;
}

RunRow run_row(const PlannedRow& planned, const TrainingFlags& flags,
               const TrainingObserver& observer) {
  if (!has_processes(flags, planned.placement)) return run_row_here(planned, flags, observer);
  const RunRow expected = planned_row(planned.task, planned.placement);
  RunRow row = run_process_row(flags, planned.placement, planned.task.batch);
  row.batch = expected.batch;
  row.epoch_rows = expected.epoch_rows;
  return row;
}

// What one device makes of the batches of a row: its baseline where that has the same batch, else a
// run that no row shows, with all cores, since its time does not count.
class References {
 public:
  References(const TrainingFlags& flags, TrainingObserver observer)
      : flags_(flags), observer_(std::move(observer)) {}

  void add(const RunRow& single) { results_[single.batch] = single.result; }

  const TrainingResult& result_for(const PlannedRow& planned) {
    const auto [found, is_new] = results_.try_emplace(planned.task.batch);
    if (is_new) {
      TrainingFlags all_cores = flags_;
      all_cores.threads_per_device.reset();
      apply_threads_per_device(all_cores, 1);
      TrainingTask unpaced = planned.task;
      unpaced.slow_motion = nullptr;
      found->second = train(unpaced, single_placement(planned), observer_);
    }
    return found->second;
  }

 private:
  const TrainingFlags& flags_;
  TrainingObserver observer_;
  std::map<std::size_t, TrainingResult> results_;  // by batch
};

Progress make_progress(const std::vector<PlannedRow>& plan, const TrainingFlags& flags) {
  std::vector<Progress::Row> rows;
  for (const PlannedRow& row : plan) {
    const std::string mode(to_string(row.placement.mode));
    const std::size_t num_devices = row.placement.devices.size();
    const double work = static_cast<double>(row.task.num_steps * row.task.batch);
    rows.push_back({num_devices == 1 ? mode : fmt::format("{} x{}", mode, num_devices),
                    has_processes(flags, row.placement) ? 0 : row.task.num_steps, work});
  }
  return Progress(std::move(rows));
}

void judge_row(const PlannedRow& planned, const TrainingResult& single, const TrainingFlags& flags,
               RunRow& row) {
  row.max_abs_weight_diff = max_abs_difference(row.result.weights, single.weights);
  row.verdict = judge(planned.task, single, row.result, [&](DType dtype, std::size_t num_steps) {
    return difference_in(dtype, num_steps, planned.task, flags, single_placement(planned),
                         planned.placement);
  });
}

}  // namespace

std::vector<RunRow> measure_rows(const std::vector<PlannedRow>& plan, const CompareFlags& flags,
                                 std::FILE* out) {
  const TableWidth width = flags.wide ? TableWidth::wide : TableWidth::terminal;
  auto warn = warn_of_explosion(plan[0].task.data->train.num_classes);  // once for all rows
  TrainingObserver observer;
  observer.on_loss = std::ref(warn);
  observer.checks = Checks::on;
  References references(flags.training, observer);
  Progress progress = make_progress(plan, flags.training);
  if (!flags.training.watch) observer.on_step = progress.observer();  // else the lanes show it
  std::vector<RunRow> rows;
  fmt::print(out, "{}\n", table_header(width));
  for (const PlannedRow& planned : plan) {
    const bool is_single = planned.placement.mode == Mode::single;
    if (is_single && planned.rows_per_device) {
      fmt::print(out, "{} rows a device\n", *planned.rows_per_device);
    }
    progress.begin_row();
    TrainingFlags of_row = flags.training;
    if (&planned != &plan.back()) of_row.trace_path.clear();  // the timeline is the last row's
    rows.push_back(run_row(planned, of_row, observer));
    if (is_single) references.add(rows.back());
    judge_row(planned, references.result_for(planned), flags.training, rows.back());
    progress.end_row();
    fmt::print(out, "{}\n", table_line(rows.back(), baseline_of(rows, rows.size() - 1), width));
    std::fflush(out);
  }
  return rows;
}

void explain_drift(const std::vector<PlannedRow>& plan, const TrainingFlags& flags,
                   const std::vector<RunRow>& rows, std::FILE* out) {
  fmt::print(out, "drift of the weights after {} steps, and what float64 gives:\n",
             plan[0].task.num_steps);
  fmt::print(out, "{:<7}{:>8}{:>11}{:>11}\n", "mode", "devices", "float32", "float64");
  std::map<std::size_t, KeptTensors> singles;  // by batch
  std::vector<std::pair<double, double>> drifts;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& [placement, task, rows_per_device, is_missing] = plan[i];
    if (placement.mode == Mode::single) continue;
    const auto weights = [&](const DevicePlacement& on) {
      return keep(weights_in(DType::float64, task.num_steps, task, flags, on));
    };
    const auto [single, is_new] = singles.try_emplace(task.batch);
    if (is_new) single->second = weights(single_placement(plan[i]));
    drifts.emplace_back(rows[i].max_abs_weight_diff,
                        largest_difference(single->second, weights(placement)).value);
    fmt::print(out, "{:<7}{:>8}{:>11.1e}{:>11.1e}\n", to_string(placement.mode),
               placement.devices.size(), drifts.back().first, drifts.back().second);
    std::fflush(out);
  }
  fmt::print(out, "{}\n", wrap(drift_sentence(drifts)));
}

}  // namespace lockstep::tools
