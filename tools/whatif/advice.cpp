#include "tools/whatif/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/text.h"
#include "engine/trace/breakdown.h"
#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

using predict::Strategy;

constexpr double kLeastGain = 0.01;
constexpr std::size_t kMoreMicroBatches = 4;
constexpr const char* kNvlinkMachine = "dgx-a100";

// A strategy's row on so many devices, with a change.
PredictedRow changed_row(PredictionTask task, const WhatIf& change, Strategy strategy,
                         std::size_t devices) {
  task.strategies = {strategy};
  task.devices = {devices};
  return predict_rows(task, change).back();
}

struct Option {
  std::string name;
  PredictedRow row;
};

bool may_accumulate(Strategy strategy) {
  return strategy == Strategy::ddp || strategy == Strategy::hierarchical ||
         strategy == Strategy::zero1;
}

std::vector<Option> options_for(const PredictionTask& task, const PredictedRow& row,
                                StepMemory& memory) {
  std::vector<Option> options;
  const auto add = [&](std::string name, const PredictionTask& changed, const WhatIf& change) {
    options.push_back({std::move(name), changed_row(changed, change, row.strategy, row.devices)});
  };
  const std::size_t doubled = 2 * samples_at_a_time(task, row);
  const bool fits = memory.row(row.strategy, row.devices, doubled).memory.total() <=
                    task.topology.device.memory_bytes;
  if (fits) {
    add(fmt::format("twice the batch ({} {} each GPU)", 2 * row.batch / row.devices,
                    predict::is_data_parallel(row.strategy) ? "on" : "for"),
        task, {.batch = 2 * row.batch});
  }
  if (may_accumulate(row.strategy) && task.accumulate == 1) {
    PredictionTask changed = task;
    changed.accumulate = kMoreMicroBatches;
    add(fmt::format("accumulating {} batches before gradients travel", kMoreMicroBatches), changed,
        {.batch = kMoreMicroBatches * row.batch});
  }
  if (predict::is_data_parallel(row.strategy)) {
    add("gradients that travel in bf16", task, {.gradient_size = 2});
  }
  predict::Network network(task.topology);
  const Way way = way_of(network, row.devices);
  if (way == Way::host_memory)
    add("peer access over PCIe", task, {.peer_access = predict::PeerAccess::all});
  if (way == Way::pcie || way == Way::host_memory) {
    PredictionTask changed = task;
    changed.topology = predict::find_topology(kNvlinkMachine);
    changed.topology.device = task.topology.device;
    if (row.devices <= changed.topology.gpus.size()) {
      add(fmt::format("such GPUs with the NVLinks of a {}", kNvlinkMachine), changed, {});
    }
  }
  return options;
}

}  // namespace

std::string duration_text(double seconds) {
  if (seconds < 120) return trace::format_seconds(seconds);
  if (seconds < 7200) return fmt::format("{:.{}f} min", seconds / 60, seconds < 597 ? 1 : 0);
  return fmt::format("{:.1f} h", seconds / 3600);
}

std::string epoch_sentence(const PredictionTask& task, std::span<const PredictedRow> rows) {
  std::string text =
      fmt::format("an epoch of {} takes", count_text(task.run.rows_per_epoch, "sample"));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const PredictedRow& row = rows[i];
    text += fmt::format("{} {}", i == 0 ? "" : ",", duration_text(row.epoch_seconds));
    if (row.step_band) {
      const double steps = row.epoch_seconds / row.step.step_seconds;
      text += fmt::format(" ({} to {})", duration_text(steps * (*row.step_band)[0]),
                          duration_text(steps * (*row.step_band)[1]));
    }
    text += " on " + count_text(row.devices, "GPU");
  }
  return text;
}

std::vector<std::string> advice_lines(const PredictionTask& task, const PredictedRow& row,
                                      StepMemory& memory) {
  if (row.devices < 2) return {};
  std::vector<Option> options = options_for(task, row, memory);
  std::erase_if(options, [&](const Option& option) {
    return option.row.epoch_seconds > (1 - kLeastGain) * row.epoch_seconds;
  });
  std::ranges::sort(options, {}, [](const Option& option) { return option.row.epoch_seconds; });
  std::vector<std::string> lines;
  for (const Option& option : options) {
    const bool trains_otherwise = option.row.batch != row.batch;
    lines.push_back(fmt::format("{}: {} an epoch instead of {}, {:.0f} % less{}", option.name,
                                duration_text(option.row.epoch_seconds),
                                duration_text(row.epoch_seconds),
                                100 * (1 - option.row.epoch_seconds / row.epoch_seconds),
                                trains_otherwise ? ", with fewer and larger steps" : ""));
  }
  if (options.empty()) lines.push_back("nothing that is tried here saves 1 % of an epoch");
  if (row.strategy != Strategy::ddp) return lines;
  const std::size_t batch = samples_at_a_time(task, row);
  const PredictedRow zero = changed_row(task, {}, Strategy::zero1, row.devices);
  const std::string step = trace::format_seconds(row.step.step_seconds);
  const std::string zero_step = trace::format_seconds(zero.step.step_seconds);
  lines.push_back(fmt::format("zero1: {:.1f} GB a GPU instead of {:.1f}, with a step of {} {}",
                              memory.row(Strategy::zero1, row.devices, batch).memory.total() / 1e9,
                              memory.row(row.strategy, row.devices, batch).memory.total() / 1e9,
                              zero_step, step == zero_step ? "as before" : "instead of " + step));
  return lines;
}

Wish parse_wish(const std::string& text) {
  std::string words;
  for (const char c : text) {
    if (c != ' ') words += c;
  }
  Wish wish{text};
  const std::size_t less = words.find('<');
  const std::string name = words.substr(0, less);
  const char* const end = words.data() + words.size();
  double number = 0;
  const char* stop = end;
  bool is_good = less != std::string::npos && (name == "epoch" || name == "step");
  if (is_good) {
    const auto read = std::from_chars(words.data() + less + 1, end, number);
    is_good = read.ec == std::errc() && number > 0;
    stop = read.ptr;
  }
  double unit = 0;
  for (const auto& [letters, seconds] : std::initializer_list<std::pair<std::string_view, double>>{
           {"ms", 1e-3}, {"s", 1}, {"min", 60}, {"m", 60}, {"h", 3600}, {"d", 86400}}) {
    if (std::string_view(stop, static_cast<std::size_t>(end - stop)) == letters) unit = seconds;
  }
  require(is_good && unit > 0, ErrorCode::Usage, "--find",
          "expected a wish such as 'epoch < 1h' or 'step < 200ms', found '{}'", shown(text));
  wish.quantity = name == "epoch" ? Wish::Quantity::epoch : Wish::Quantity::step;
  wish.seconds = number * unit;
  return wish;
}

std::string find_sentence(PredictionTask task, const Wish& wish, StepMemory& memory) {
  const auto seconds_of = [&](const PredictedRow& row) {
    return wish.quantity == Wish::Quantity::epoch ? row.epoch_seconds : row.step.step_seconds;
  };
  const std::string& device = task.topology.device.name;
  std::vector<Strategy> strategies = task.strategies;
  if (strategies.empty()) strategies = {Strategy::ddp};
  std::optional<PredictedRow> fastest;
  for (std::size_t devices = 1; devices <= task.topology.gpus.size(); ++devices) {
    for (const Strategy strategy : strategies) {
      if (!is_possible(task, strategy, devices)) continue;
      const PredictedRow row = changed_row(task, {}, strategy, devices);
      const std::size_t samples = samples_at_a_time(task, row);
      if (memory.row(strategy, devices, samples).memory.total() >
          task.topology.device.memory_bytes) {
        continue;
      }
      if (!fastest || seconds_of(row) < seconds_of(*fastest)) fastest = row;
      if (seconds_of(row) >= wish.seconds) continue;
      return fmt::format("{}: {} {} with {}, {}", wish.text, devices, device,
                         predict::to_string(row.strategy), duration_text(seconds_of(row)));
    }
  }
  if (!fastest) return fmt::format("{}: no number of {} holds the step", wish.text, device);
  return fmt::format("{}: none of up to {} {}; the fastest are {} with {}, {}", wish.text,
                     task.topology.gpus.size(), device, fastest->devices,
                     predict::to_string(fastest->strategy), duration_text(seconds_of(*fastest)));
}

std::string_view how_to_measure() {
  return R"(import torch                                       # your model, loss, optimizer and one batch on the GPU
def step():
    optimizer.zero_grad(set_to_none=True); loss(model(x), y).backward(); optimizer.step()
for _ in range(20): step()                         # warm-up: memory, cuDNN's choices, clocks
times = []
for _ in range(50):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record(); step(); end.record()
    torch.cuda.synchronize(); times.append(start.elapsed_time(end))
print(f"--step {sorted(times)[25] / 1e3:.6f}")     # the median, in seconds
)";
}

}  // namespace lockstep::tools
