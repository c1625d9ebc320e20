#include "tools/run/batch_norm_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/core/error.h"
#include "engine/nn/models.h"
#include "engine/plan/scatter.h"
#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

// --sampler torch gives each rank as many rows.
bool pads_rows(const TrainingTask& task, const DevicePlacement& placement) {
  return task.sampler == Sampler::torch && has_ranks(placement.mode);
}

// The fewest rows that batch norm takes statistics of in a step of so many rows.
std::size_t rows_of_statistics(const TrainingTask& task, const DevicePlacement& placement,
                               std::size_t rows) {
  if (task.batch_norm == parallel::BatchNormRows::all) return rows;
  const std::size_t num_devices = placement.devices.size();
  return pads_rows(task, placement) ? rows / num_devices
                                    : plan::scatter_plan(rows, num_devices).parts.back().size;
}

// Rows of a full batch and of an epoch's last one.
std::array<std::size_t, 2> rows_of_batches(const TrainingTask& task,
                                           const DevicePlacement& placement, std::size_t batch) {
  const std::size_t num_devices = placement.devices.size();
  std::size_t rows = task.data->train.num_rows();
  if (pads_rows(task, placement)) rows = (rows + num_devices - 1) / num_devices * num_devices;
  const std::size_t last = rows % batch == 0 ? batch : rows % batch;
  return {std::min(batch, rows), last};
}

bool fits_batch_norm(const TrainingTask& task, std::span<const DevicePlacement> placements,
                     std::size_t batch) {
  return std::ranges::all_of(placements, [&](const DevicePlacement& placement) {
    const bool is_even = !pads_rows(task, placement) || batch % placement.devices.size() == 0;
    return is_even &&
           std::ranges::none_of(rows_of_batches(task, placement, batch), [&](std::size_t rows) {
             return rows_of_statistics(task, placement, rows) == 1;
           });
  });
}

// "use --batch 1498": the nearest that fits; empty if none does. unit: --batch is a multiple of it.
std::string fitting_batch(const TrainingTask& task, std::span<const DevicePlacement> placements,
                          std::string_view flag, std::size_t unit) {
  for (std::size_t i = unit; i <= std::max(task.batch, task.data->train.num_rows()); i += unit) {
    for (const std::size_t batch : {task.batch - std::min(i, task.batch), task.batch + i}) {
      if (batch == 0 || batch > task.data->train.num_rows()) continue;
      if (fits_batch_norm(task, placements, batch)) {
        return fmt::format("; use {} {}", flag, batch / unit);
      }
    }
  }
  return {};
}

}  // namespace

void require_rows_for_batch_norm(const TrainingTask& task, const TrainingFlags& flags,
                                 std::span<const DevicePlacement> placements) {
  const nn::ModelSpec model = nn::parse_model(task.model);
  if (!model.has_batch_norm() || nn::least_batch_norm_values(model, task.model_data()) > 1) return;
  const std::size_t per_epoch = task.steps_per_epoch();
  const std::size_t first = task.first_step() % per_epoch;
  const std::size_t num_steps = task.num_steps - task.first_step();
  // Which steps are made: full ones, the last one of an epoch.
  const std::array<bool, 2> is_made = {num_steps > 0 && (first + 1 < per_epoch || num_steps > 1),
                                       first + num_steps >= per_epoch};
  const std::string_view flag = flags.per_device_batch.empty() ? "--batch" : "--per-device-batch";
  for (const DevicePlacement& placement : placements) {
    const std::array<std::size_t, 2> rows = rows_of_batches(task, placement, task.batch);
    const std::size_t num_devices = placement.devices.size();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (!is_made[i] || rows_of_statistics(task, placement, rows[i]) != 1) continue;
      const bool helps = task.batch_norm == parallel::BatchNormRows::own && rows[i] > 1;
      fail(ErrorCode::Usage, flag, "batch norm in {} needs 2 rows of {}{}, and {} has {}{}{}{}",
           task.model, task.data->train.name,
           task.batch_norm == parallel::BatchNormRows::own ? " on each device" : "",
           i == 0 ? "a batch" : "the last batch of an epoch", count_text(rows[i], "row"),
           num_devices == 1 ? "" : fmt::format(" for {} devices", num_devices),
           fitting_batch(task, placements, flag, flag == "--batch" ? 1 : num_devices),
           helps ? ", or --sync-batch-norm, which takes the rows of all devices together" : "");
    }
  }
}

}  // namespace lockstep::tools
