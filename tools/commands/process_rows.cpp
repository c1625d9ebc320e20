#include "tools/commands/process_rows.h"

#include <algorithm>

#include "engine/core/error.h"
#include "engine/launch/process.h"
#include "engine/nn/state_dict.h"
#include "tools/record/measured_row.h"
#include "tools/run/processes.h"

namespace lockstep::tools {
namespace {

// The flags of `train` for a row. --trace and --dtype are the row's.
TrainingFlags flags_of_row(TrainingFlags flags, const DevicePlacement& placement,
                           std::size_t batch) {
  flags.shard = shard_word(placement.mode);
  flags.parallel = placement.mode == Mode::single ? "none"
                   : flags.shard.empty()          ? to_string(placement.mode)
                                                  : "ddp";
  flags.devices = static_cast<int>(placement.devices.size());
  flags.batch = static_cast<int>(batch);
  flags.per_device_batch.clear();
  flags.json_path.clear();
  return flags;
}

// Runs `train`. If it fails, throws an Error that ends with its last words: Error{Usage} if it
// exited with 2, else Error{Comm}.
void run_train(const TrainingFlags& flags, const DevicePlacement& placement,
               const std::vector<std::string>& more) {
  std::vector<std::string> command{this_program(), "train"};
  for (const std::vector<std::string>& words : {more, words_of(flags)}) {
    command.insert(command.end(), words.begin(), words.end());
  }
  const ChildEnd end = run_child(command, launch::current_environment(),
                                 {.beyond_bytes = ChildLimits::BeyondBytes::forget});
  if (end.code == 0) return;
  constexpr std::string_view kName = "lockstep: ";
  std::string why = last_line(end.err);
  if (why.starts_with(kName)) why.erase(0, kName.size());
  fail(end.code == 2 ? ErrorCode::Usage : ErrorCode::Comm, "compare",
       "{} on {} {} ended with exit code {}: {}", to_string(placement.mode),
       placement.devices.size(), flags.ranks == "processes" ? "processes" : "devices", end.code,
       why);
}

// A third of a row's steps, at least one.
std::size_t step_of_interruption(const PlannedRow& planned) {
  return std::max<std::size_t>(1, planned.task.num_steps / 3);
}

}  // namespace

bool has_processes(const TrainingFlags& flags, const DevicePlacement& placement) {
  return flags.ranks == "processes" && has_ranks(placement.mode);
}

RunRow run_process_row(const TrainingFlags& flags_of_all, const PlannedRow& planned) {
  const TemporaryFolder folder;
  const std::string row_path = folder.path() + "/row.cbor";
  TrainingFlags flags = flags_of_row(flags_of_all, planned.placement, planned.task.batch);
  flags.save_path = folder.path() + "/weights.safetensors";
  run_train(flags, planned.placement, {"--row", row_path});
  RunRow row = planned_row(planned.task, planned.placement);
  read_process_row(row_path, row);
  row.result.weights = nn::load_weights(flags.save_path);
  return row;
}

RunRow run_resumed_row(const TrainingFlags& flags, const PlannedRow& planned) {
  const TemporaryFolder folder;
  TrainingFlags stopped = flags_of_row(flags, planned.placement, planned.task.batch);
  stopped.trace_path.clear();
  stopped.checkpoint_dir = folder.path();
  stopped.checkpoint_every = static_cast<int>(planned.task.num_steps);
  const std::size_t step = step_of_interruption(planned);
  run_train(stopped, planned.placement, {"--end-after", std::to_string(step)});
  TrainingFlags resumed = flags;
  resumed.trace_path.clear();
  resumed.resume = folder.path();
  RunRow row = run_process_row(resumed, planned);
  row.resumed_after = step;
  return row;
}

}  // namespace lockstep::tools
