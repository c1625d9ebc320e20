#include "tools/explain/doubling.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/explain/step_cost.h"
#include "tools/report/bound.h"
#include "tools/report/row_table.h"

namespace lockstep::tools {
namespace {

using trace::format_seconds;

std::string single_device_text(const FileRow& row, const std::optional<FileWorkload>& workload) {
  const trace::StepBreakdown& step = *row.breakdown;
  const double computation = step.forward + step.backward;
  const double halved = row.step_seconds - computation / 2;
  std::string text = fmt::format(
      "Without communication, which one device does not show: forward and backward halve ({} to "
      "{}), the rest stays ({}): a step of {}, {:.2f} times as fast at most.",
      format_seconds(computation), format_seconds(computation / 2),
      format_seconds(row.step_seconds - computation), format_seconds(halved),
      row.step_seconds / halved);
  if (!workload) return text;
  double num_bytes = 0;
  for (const FileLayer& layer : workload->layers) num_bytes += layer.parameter_bytes;
  return text + fmt::format(" Each of two devices would send {} a step: 2(n-1)/n of the gradients.",
                            format_bytes(static_cast<std::size_t>(std::min(num_bytes, 1e18))));
}

// "Measured in this file: ddp x4 takes 8.75 ms."
std::string measured_text(const RunRows& found, const FileRow& row, std::size_t num_cores) {
  for (std::size_t i = 0; i < found.rows.size(); ++i) {
    const FileRow& other = *found.of_file[i];
    if (other.mode != row.mode || other.devices != 2 * row.devices || other.batch != row.batch ||
        other.what_if != row.what_if) {
      continue;
    }
    return fmt::format(
        " The file has that row, {}: {} {} {}{}.", other.kind, name_of(other),
        other.kind == "predicted" ? "takes" : "took", format_seconds(other.step_seconds),
        is_oversubscribed(found.rows[i], num_cores) ? ", with devices that share their hardware"
                                                    : "");
  }
  return {};
}

}  // namespace

std::string doubling_text(const RunRows& found, std::size_t index, const SharedHardware& hardware,
                          const std::optional<FileWorkload>& workload) {
  const FileRow& row = *found.of_file[index];
  if (!row.breakdown) return "The file cannot tell: it has no breakdown of a step.";
  if (row.devices == 1) {
    return single_device_text(row, workload) + measured_text(found, row, hardware.num_cores);
  }
  if (is_oversubscribed(found.rows[index], hardware.num_cores)) {
    return fmt::format(
        "The file cannot tell: the {} devices of every row share {} {}, so it holds no step of "
        "devices with hardware of their own. More of them would share it further.{}",
        row.devices, hardware.is_cpu ? hardware.num_cores : row.physical_devices,
        hardware.is_cpu ? "cores" : "GPUs", measured_text(found, row, hardware.num_cores));
  }
  if (row.mode != "dp" && row.mode != "ddp") {
    return fmt::format(
        "The file cannot tell: how the traffic of {} grows with its devices is known here of dp "
        "and "
        "ddp only.{}",
        row.mode, measured_text(found, row, hardware.num_cores));
  }
  const DoubledStep next = double_devices(row);
  const double growth =
      next.comm - next.hidden - (row.step_seconds - next.fixed - 2 * next.computation);
  std::string text = fmt::format(
      "{} x{} with the same batch: forward and backward halve ({} to {}), the optimizer and what "
      "else is fixed stays ({}), communication takes {:.2f} times as long, as its bytes ({} in "
      "all, {} of it hidden behind backward): {} + {} + {} = {} a step, {:.2f} times as fast as "
      "now; 2 would be ideal. With twice the batch, too: {} a step, {:.2f} times the rows a "
      "second.",
      row.mode, 2 * row.devices, format_seconds(2 * next.computation),
      format_seconds(next.computation), format_seconds(next.fixed), next.traffic_factor,
      format_seconds(next.comm), format_seconds(next.hidden), format_seconds(next.computation),
      format_seconds(next.fixed), format_seconds(next.comm - next.hidden),
      format_seconds(next.step), row.step_seconds / next.step,
      format_seconds(row.step_seconds + growth),
      2 * row.step_seconds / (row.step_seconds + growth));
  const std::size_t num_needed = 2 * row.devices * (hardware.is_cpu ? row.threads_per_device : 1);
  const std::size_t num_units = hardware.is_cpu ? hardware.num_cores : row.physical_devices;
  if (row.kind == "measured" && num_needed > num_units) {
    text += fmt::format(" That takes {} {}; the run had {}.", num_needed,
                        hardware.is_cpu ? "cores" : "GPUs", num_units);
  }
  return text + measured_text(found, row, hardware.num_cores);
}

}  // namespace lockstep::tools
