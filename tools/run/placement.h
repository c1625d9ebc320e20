// Decides where a task is trained: how many devices, which, and what a person is told about them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/device.h"
#include "engine/parallel/sharded/unit.h"
#include "tools/flags/training_flags.h"
#include "tools/run/task.h"

namespace lockstep::tools {

// zero1 to zero3: ddp with --shard optimizer, gradients or parameters.
enum class Mode { single, data_parallel, ddp, pipeline, zero1, zero2, zero3, tensor };

// "single", "dp", "ddp", "pipeline", "zero1", ..., as in the run file. Throws Error{Usage} for any
// other name.
std::string_view to_string(Mode mode);
Mode parse_mode(std::string_view name);

// Each device has a rank of its own, a thread or a process.
bool has_ranks(Mode mode);
std::optional<parallel::ShardDepth> shard_depth(Mode mode);
// The mode for a word of --shard (empty: ddp), and the word for a mode.
Mode mode_of_ranks(std::string_view shard);
std::string shard_word(Mode mode);

struct DevicePlacement {
  Mode mode = Mode::single;
  std::vector<Device> devices = {};
  // Set if the devices also belong to other processes, which alone know them.
  std::optional<std::size_t> num_physical = std::nullopt;
};

// The device type that --device names (auto: CUDA if there is a GPU), after declaring what
// --virtual-devices says. Also sets --precision.
// Throws Error{Device} for cuda where there is none, with the reason.
DeviceType resolve_device_type(const TrainingFlags& flags);

// {cuda:0, ..., cuda:count-1}, or exactly --device-ids.
// Throws Error{Usage} for devices that do not exist, and proposes --virtual-devices.
std::vector<Device> resolve_devices(const TrainingFlags& flags, DeviceType type);

// Throws what ranks that are processes of this machine, one per device, would throw once they have
// been started, so that it is said once. No thread of a GPU's driver takes signals afterwards: the
// launcher that this process becomes waits for them.
// Throws as resolve_device_type, resolve_devices and require_reachable_devices do.
void require_startable(const RankFlags& ranks, const TrainingFlags& devices);

// The threads of every CPU device: --threads-per-device, else OMP_NUM_THREADS, else cores /
// devices, at least 1; always 1 under --bitwise. num_devices: those that share this process's
// cores.
std::size_t threads_per_device(const TrainingFlags& flags, std::size_t num_devices);
void apply_threads_per_device(const TrainingFlags& flags, std::size_t num_devices);

// Says once on stderr how many cores there are, if --threads-per-device asks for more threads;
// under a launcher the machine's first rank says it.
void note_missing_cores(std::size_t threads);

// "using device: cuda:0, cuda:1 (virtual, on one NVIDIA H200)"; of many, "cpu:0 to cpu:7".
std::string describe_devices(const std::vector<Device>& devices);

// Span::rank of each device's spans: ranks are numbered, the devices of one process are named.
std::vector<int> tracks_of(const DevicePlacement& placement);

// The number of physical devices: GPUs, or 1 for the CPU.
std::size_t num_physical_devices(const std::vector<Device>& devices);
std::size_t num_physical_devices(const DevicePlacement& placement);

// The line that says how many devices get no rows of a full batch, because it has too few; empty if
// all have some.
std::string idle_note(const TrainingTask& task, const DevicePlacement& placement);

// The task as it is trained there: cut for a pipeline or into shards, if the mode says so.
// REQUIRES: its data is loaded. Throws Error{Usage} for what mode and sampler cannot do with these
// devices.
TrainingTask fitted_task(TrainingTask task, const TrainingFlags& flags,
                         const DevicePlacement& placement);

// Throws Error{Usage} for what --parallel tensor cannot do with so many ranks.
void require_fitting_tensor(const TrainingFlags& flags, const TrainingTask& task,
                            std::size_t num_ranks);

}  // namespace lockstep::tools
