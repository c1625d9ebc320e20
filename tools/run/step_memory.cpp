#include "tools/run/step_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <ranges>
#include <utility>

#include "engine/comm/thread_group.h"
#include "engine/core/error.h"
#include "engine/data/data_loader.h"
#include "engine/runtime/logical_device.h"
#include "simulate/predict/memory.h"
#include "tools/run/memory_watch.h"
#include "tools/run/model.h"
#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

constexpr int kNumSteps = 5;

// The first step makes the optimizer's state. How much of messages on the way adds up differs from
// step to step.
void run_steps(const TrainingTask& task, const Strategies& strategies) {
  for (const auto& strategy : strategies) {
    const std::size_t rows = strategy->rows_of(task.batch).size;
    const Device device = strategy->devices()[0];
    const data::Batch batch{Tensor::zeros(task.batch_shape(rows), task.batch_dtype(), device),
                            Tensor::zeros(task.label_shape(rows), DType::int64, device), task.batch,
                            0};
    const auto optimizer = make_optimizer(task, *strategy);
    for (int i = 0; i < kNumSteps; ++i) {
      optimizer->zero_grad();
      add_gradients(task, *strategy, batch);
      optimizer->step();
    }
  }
}

// Virtual devices share what is behind them.
struct Physical {
  Device first;
  double needed_bytes = 0;
  double available_bytes = 0;
};

std::vector<Physical> on_physical(const std::vector<std::size_t>& bytes,
                                  const DevicePlacement& placement) {
  std::map<int, Physical> found;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const Device device = placement.devices[i];
    const int gpu = device.type == DeviceType::cuda ? runtime::gpu_behind(device) : 0;
    Physical& physical = found.try_emplace(gpu, Physical{device}).first->second;
    physical.needed_bytes += static_cast<double>(bytes[i]);
    const std::size_t free_bytes = runtime::logical_device(device).memory().free_bytes();
    physical.available_bytes = (1 - predict::kFragmentation) * static_cast<double>(free_bytes);
  }
  std::vector<Physical> all;
  for (const auto& [gpu, physical] : found) all.push_back(physical);
  return all;
}

// The fewest rows that every device, micro-batch and batch norm can do with.
std::size_t fewest_rows(const TrainingTask& task, const DevicePlacement& placement) {
  const std::size_t parts =
      task.pipeline ? task.pipeline->num_micro_batches : placement.devices.size();
  return 2 * parts * task.accumulate;
}

std::vector<Physical> measure(const TrainingTask& task, const TrainingFlags& flags,
                              const DevicePlacement& placement, std::size_t rows) {
  TrainingTask small = fitted_task(with_batch(task, flags, rows), flags, placement);
  small.launching = TrainingTask::Launching::op_by_op;
  std::vector<std::size_t> bytes = step_bytes(small, placement);
  const std::size_t num_loaders = has_ranks(placement.mode) ? bytes.size() : 1;
  for (std::size_t i = 0; i < num_loaders; ++i) {
    bytes[i] += data::DataLoader::bytes_ahead(task.data->train, rows / num_loaders,
                                              placement.devices[i].type);
  }
  return on_physical(bytes, placement);
}

// True if rows by now take much of the memory, and not only what a step needs in any case.
bool has_grown(const std::vector<Physical>& first, const std::vector<Physical>& large) {
  return std::ranges::any_of(std::views::iota(std::size_t{0}, first.size()), [&](std::size_t i) {
    return large[i].needed_bytes - first[i].needed_bytes > large[i].available_bytes / 16;
  });
}

}  // namespace

std::vector<std::size_t> step_bytes(const TrainingTask& task, const DevicePlacement& placement) {
  const MemoryWatch watch(placement.devices);
  if (has_ranks(placement.mode)) {
    comm::run_ranks(static_cast<int>(placement.devices.size()), [&](comm::Communicator& rank) {
      const Device device = placement.devices[static_cast<std::size_t>(rank.rank())];
      run_steps(task, make_strategies(task, device, rank));
    });
  } else {
    run_steps(task, make_strategies(task, placement));
  }
  std::vector<std::size_t> bytes;
  for (std::size_t i = 0; i < placement.devices.size(); ++i) {
    bytes.push_back(watch.peak_of_steps(i));
    runtime::LogicalDevice& device = runtime::logical_device(placement.devices[i]);
    for (runtime::Stream* stream : {&device.compute_stream(), &device.copy_stream()}) {
      stream->synchronize();
    }
    device.memory().release_cached();
    device.copy_pool().release_cached();
  }
  return bytes;
}

std::string say_which_batch_fits(const TrainingTask& task, const TrainingFlags& flags,
                                 const DevicePlacement& placement, std::size_t num_processes) try {
  const std::size_t asked = task.rows_of_full_batch() / num_processes;
  const std::size_t few = fewest_rows(task, placement);
  if (asked <= few) return {};
  const auto measured = [&](std::size_t rows) { return measure(task, flags, placement, rows); };
  measured(few);  // makes what libraries keep
  const std::vector<Physical> first = measured(few);
  std::vector<Physical> half = first, large = first;
  std::size_t rows = few;
  while (2 * rows <= asked && !has_grown(first, large)) {
    half = std::exchange(large, measured(rows *= 2));
  }
  std::string text;
  double most_rows = static_cast<double>(asked);
  for (std::size_t i = 0; i < large.size(); ++i) {
    const auto [device, needed, available] = large[i];
    const double row = (needed - half[i].needed_bytes) / static_cast<double>(rows - rows / 2);
    const double more = static_cast<double>(asked) - static_cast<double>(rows);
    const double fitting = std::floor(static_cast<double>(rows) + (available - needed) / row);
    if (row <= 0 || fitting >= most_rows) continue;
    most_rows = fitting;
    text = fmt::format("; a step on {} needs about {} on {}, which has {}",
                       count_text(task.rows_of_full_batch(), "row"),
                       format_bytes(static_cast<std::size_t>(needed + row * more)),
                       to_string(device), format_bytes(static_cast<std::size_t>(available)));
  }
  if (text.empty()) return {};
  if (most_rows < static_cast<double>(few)) return text + ": no batch would fit";
  return text + fmt::format(": about {:.0f} rows would fit",
                            most_rows * static_cast<double>(num_processes));
} catch (const Error&) {  // not even so few rows fit
  return {};
}

}  // namespace lockstep::tools
