#include "tools/run/placement.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "engine/core/error.h"
#include "engine/launch/process.h"
#include "engine/launch/rank_environment.h"
#include "engine/nn/models.h"
#include "engine/plan/micro_shards.h"
#include "engine/plan/scatter.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/physical_gpus.h"
#include "kernels/matmul_precision.h"
#include "tools/flags/numbers.h"
#include "tools/flags/rank_flags.h"
#include "tools/run/pipeline.h"
#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

constexpr std::size_t kMostThreads = 1024;  // a device's
constexpr std::array<std::string_view, 8> kModes = {"single", "dp",    "ddp",   "pipeline",
                                                    "zero1",  "zero2", "zero3", "tensor"};
// The words of --shard, in the order of the modes zero1, zero2 and zero3.
constexpr std::array<std::string_view, 3> kShards = {"optimizer", "gradients", "parameters"};

// For the calling thread, and for threads that are started meanwhile for good.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

// OMP_NUM_THREADS, if it holds a number, as PyTorch reads it: "4", or "4,2", of which the first
// counts. A 1 in one of several ranks does not: launchers set it where the user says nothing.
std::optional<std::size_t> omp_num_threads() {
  const launch::Environment environment = launch::current_environment();
  const std::optional<std::string> text = launch::find_variable(environment, "OMP_NUM_THREADS");
  std::size_t threads = 0;
  if (!text) return std::nullopt;
  const auto [end, problem] = std::from_chars(text->data(), text->data() + text->size(), threads);
  const bool is_number = problem == std::errc{} && (*end == '\0' || *end == ',');
  if (!is_number || threads < 1 || threads > kMostThreads) return std::nullopt;
  if (threads == 1 && launch::rank_environment(environment).world_size > 1) return std::nullopt;
  return threads;
}

// "cpu:0 to cpu:63 do", "only cuda:0 does".
std::string existing(DeviceType type) {
  const int count = runtime::num_devices(type);
  const std::string_view name = lockstep::to_string(type);
  return count == 1 ? fmt::format("only {}:0 does", name)
                    : fmt::format("{}:0 to {}:{} do", name, name, count - 1);
}

// Suggests what to do about a logical GPU that does not exist.
std::string virtual_hint(DeviceType type, std::size_t count) {
  if (type == DeviceType::cpu) return {};
  return fmt::format(
      "; use --device cpu, or several logical devices on one GPU: --virtual-devices 'cuda:0*{}'",
      count);
}

std::vector<int> listed_ids(const TrainingFlags& flags, DeviceType type) {
  const auto num_existing = static_cast<std::size_t>(runtime::num_devices(type));
  std::vector<int> ids;
  for (const std::size_t id : parse_list("--device-ids", flags.device_ids)) {
    require(id < num_existing, ErrorCode::Usage, "--device-ids", "{}:{} does not exist; {}{}",
            lockstep::to_string(type), id, existing(type), virtual_hint(type, id + 1));
    require(std::find(ids.begin(), ids.end(), static_cast<int>(id)) == ids.end(), ErrorCode::Usage,
            "--device-ids", "{} appears twice in '{}'; name each device once", id,
            flags.device_ids);
    ids.push_back(static_cast<int>(id));
  }
  return ids;
}

// Asks no GPU: the device may be another process's.
int gpu_of(Device device) {
  if (device.type == DeviceType::cpu) return runtime::kNoGpu;
  return runtime::logical_gpus().at(static_cast<std::size_t>(device.index));
}

bool are_consecutive(const std::vector<Device>& devices) {
  return std::ranges::adjacent_find(
             devices, [](Device a, Device b) { return b.index != a.index + 1; }) == devices.end();
}

std::string describe_cpu(std::size_t num_devices) {
  const std::size_t cores = runtime::num_cores();
  const std::size_t threads = runtime::threads_per_device();
  return fmt::format("{} {} {}, {} {}{}", num_devices == 1 ? "on" : "virtual, on", cores,
                     cores == 1 ? "core" : "cores", threads, threads == 1 ? "thread" : "threads",
                     num_devices == 1 ? "" : " each");
}

std::string describe_gpus(const std::vector<Device>& devices) {
  const std::size_t num_gpus = num_physical_devices(devices);
  const auto first = static_cast<std::size_t>(gpu_of(devices[0]));
  const std::string& name = runtime::physical_gpus().at(first).name;
  if (num_gpus == devices.size()) return name;
  return num_gpus == 1 ? fmt::format("virtual, on one {}", name)
                       : fmt::format("virtual, on {} GPUs, the first a {}", num_gpus, name);
}

// Devices without rows of a full batch.
std::size_t num_idle_devices(const TrainingTask& task, const DevicePlacement& placement) {
  const std::size_t num_devices = placement.devices.size();
  if (placement.mode == Mode::pipeline || placement.mode == Mode::tensor) return 0;
  if (task.sampler == Sampler::torch && has_ranks(placement.mode)) return 0;
  const std::size_t rows = task.rows_of_full_batch();
  if (task.summation == Summation::plain) {
    return plan::scatter_plan(rows, num_devices).num_idle_devices();
  }
  const plan::MicroShardPlan plan = plan::micro_shard_plan(rows, num_devices);
  std::size_t idle = 0;
  for (std::size_t d = 0; d < num_devices; ++d) idle += plan.rows_of_device(d).size == 0;
  return idle;
}

}  // namespace

std::string_view to_string(Mode mode) {
  return kModes[static_cast<std::size_t>(mode)];
}

Mode parse_mode(std::string_view name) {
  const auto found = std::ranges::find(kModes, name);
  require(found != kModes.end(), ErrorCode::Usage, "mode", "unknown mode '{}'", name);
  return static_cast<Mode>(found - kModes.begin());
}

bool has_ranks(Mode mode) {
  return mode != Mode::single && mode != Mode::data_parallel;
}

std::optional<parallel::ShardDepth> shard_depth(Mode mode) {
  if (mode == Mode::zero1) return parallel::ShardDepth::optimizer;
  if (mode == Mode::zero2) return parallel::ShardDepth::gradients;
  if (mode == Mode::zero3) return parallel::ShardDepth::parameters;
  return std::nullopt;
}

Mode mode_of_ranks(std::string_view shard) {
  const auto found = std::ranges::find(kShards, shard);
  if (found == kShards.end()) return Mode::ddp;
  return static_cast<Mode>(static_cast<int>(Mode::zero1) + (found - kShards.begin()));
}

std::string shard_word(Mode mode) {
  if (!shard_depth(mode)) return "";
  return std::string(
      kShards[static_cast<std::size_t>(mode) - static_cast<std::size_t>(Mode::zero1)]);
}

DeviceType resolve_device_type(const TrainingFlags& flags) {
  using kernels::MatmulPrecision;
  kernels::set_matmul_precision(flags.precision == "bf16"   ? MatmulPrecision::bf16
                                : flags.precision == "tf32" ? MatmulPrecision::high
                                                            : MatmulPrecision::highest);
  const bool has_gpu = !runtime::physical_gpus().empty();
  if (flags.device == "cuda" && !has_gpu) {
    fail(ErrorCode::Device, "--device", "cuda was asked for: {}", runtime::no_gpu_reason());
  }
  const bool is_cpu = flags.device == "cpu" || !has_gpu || !flags.act_as.empty();
  const DeviceType type = is_cpu ? DeviceType::cpu : DeviceType::cuda;
  if (!flags.virtual_devices.empty()) {
    require(type == DeviceType::cuda, ErrorCode::Usage, "--virtual-devices",
            "'{}' shares a GPU, and {}; CPU devices cpu:0 to cpu:{} are virtual already, so name "
            "or count them",
            flags.virtual_devices,
            flags.device == "cpu" ? std::string("--device is cpu") : runtime::no_gpu_reason(),
            runtime::kMaxCpuDevices - 1);
    runtime::set_virtual_devices(flags.virtual_devices);
  }
  return type;
}

std::vector<Device> resolve_devices(const TrainingFlags& flags, DeviceType type) {
  if (!flags.device_ids.empty()) return devices_of(type, listed_ids(flags, type));
  const auto num_existing = static_cast<std::size_t>(runtime::num_devices(type));
  const std::size_t count = require_positive("--devices", flags.devices.value_or(1));
  require(count <= num_existing, ErrorCode::Usage, "--devices", "there {} {} {} {}, asked for {}{}",
          num_existing == 1 ? "is" : "are", num_existing, lockstep::to_string(type),
          num_existing == 1 ? "device" : "devices", count, virtual_hint(type, count));
  std::vector<int> ids;
  for (std::size_t i = 0; i < count; ++i) ids.push_back(static_cast<int>(i));
  return devices_of(type, ids);
}

void require_startable(const RankFlags& ranks, const TrainingFlags& devices) {
  const SignalsBlocked scope;
  const DeviceType type = resolve_device_type(devices);
  const std::size_t num_ranks = resolve_devices(devices, type).size();
  require_reachable_devices(ranks, type, static_cast<int>(num_ranks));
}

void note_missing_cores(std::size_t threads) {
  static bool is_noted = false;
  const std::size_t cores = runtime::num_cores();
  const bool is_first = launch::rank_environment(launch::current_environment()).local_rank == 0;
  if (is_noted || threads <= cores || !is_first) return;
  is_noted = true;
  fmt::print(stderr,
             "lockstep: [--threads-per-device] {} threads, and there {} {}: they take turns\n",
             threads, cores == 1 ? "is" : "are", count_text(cores, "core"));
}

std::size_t threads_per_device(const TrainingFlags& flags, std::size_t num_devices) {
  std::size_t threads = std::max<std::size_t>(1, runtime::num_cores() / num_devices);
  if (const std::optional<std::size_t> said = omp_num_threads()) threads = *said;
  if (flags.threads_per_device) {
    threads = require_positive("--threads-per-device", *flags.threads_per_device);
    require(threads <= kMostThreads, ErrorCode::Usage, "--threads-per-device",
            "at most {}, found {}", kMostThreads, threads);
  }
  return flags.bitwise ? 1 : threads;
}

void apply_threads_per_device(const TrainingFlags& flags, std::size_t num_devices) {
  const std::size_t threads = threads_per_device(flags, num_devices);
  if (flags.threads_per_device) note_missing_cores(threads);
  runtime::set_threads_per_device(threads);
}

std::string describe_devices(const std::vector<Device>& devices) {
  std::string names;
  for (const Device device : devices) {
    names += (names.empty() ? "" : ", ") + lockstep::to_string(device);
  }
  if (devices.size() > 3 && are_consecutive(devices)) {
    names = fmt::format("{} to {}", lockstep::to_string(devices.front()),
                        lockstep::to_string(devices.back()));
  }
  const bool is_cpu = devices[0].type == DeviceType::cpu;
  return fmt::format("using device: {} ({})", names,
                     is_cpu ? describe_cpu(devices.size()) : describe_gpus(devices));
}

std::vector<int> tracks_of(const DevicePlacement& placement) {
  std::vector<int> tracks;
  for (const Device device : placement.devices) {
    tracks.push_back(has_ranks(placement.mode) ? static_cast<int>(tracks.size()) : device.index);
  }
  return tracks;
}

std::size_t num_physical_devices(const std::vector<Device>& devices) {
  std::set<int> gpus;
  for (const Device device : devices) gpus.insert(gpu_of(device));
  return gpus.size();
}

std::size_t num_physical_devices(const DevicePlacement& placement) {
  return placement.num_physical ? *placement.num_physical : num_physical_devices(placement.devices);
}

std::string idle_note(const TrainingTask& task, const DevicePlacement& placement) {
  const std::size_t idle = num_idle_devices(task, placement);
  if (idle == 0) return {};
  return fmt::format("{} of {} devices {} idle: a batch of {} has no rows for {}", idle,
                     placement.devices.size(), idle == 1 ? "stays" : "stay",
                     count_text(task.rows_of_full_batch(), "row"), idle == 1 ? "it" : "them");
}

void require_fitting_tensor(const TrainingFlags& flags, const TrainingTask& task,
                            std::size_t num_ranks) {
  const nn::ModelSpec spec = nn::parse_model(task.model);
  const bool is_mlp = spec.kind == nn::ModelSpec::Kind::mlp && spec.mlp.sizes.size() > 2;
  require(is_mlp || spec.takes_text(), ErrorCode::Usage, "--model",
          "tensor parallelism cuts the matrices of an MLP with hidden layers or of a GPT, found {}",
          task.model);
  refuse(
      flags.bitwise, "--bitwise",
      "adds eight micro-shards of rows in a tree, and tensor parallelism cuts matrices; leave it "
      "out");
  refuse(flags.graph, "--graph",
         "captures steps from one thread, and the ranks of tensor parallelism wait for each other; "
         "leave it out");
  refuse(flags.sampler != "exact", "--sampler",
         "torch gives each rank rows of its own, and in tensor parallelism they share them; use "
         "exact");
  std::vector<std::pair<std::string, std::size_t>> cut;
  if (spec.takes_text()) cut.emplace_back("heads", spec.gpt.heads);
  for (std::size_t i = 1; is_mlp && i + 1 < spec.mlp.sizes.size(); i += 2) {
    cut.emplace_back(fmt::format("neurons of hidden layer {}", i), spec.mlp.sizes[i]);
  }
  for (const auto& [what, count] : cut) {
    require(count % num_ranks == 0, ErrorCode::Usage, "--devices",
            "{} devices do not divide the {} {} of {}; use a number that does", num_ranks, count,
            what, task.model);
  }
}

TrainingTask fitted_task(TrainingTask task, const TrainingFlags& flags,
                         const DevicePlacement& placement) {
  const std::size_t num_ranks = placement.devices.size();
  if (placement.mode == Mode::pipeline) task = with_pipeline(std::move(task), flags, num_ranks);
  task.cuts_tensors = placement.mode == Mode::tensor;
  if (task.cuts_tensors) require_fitting_tensor(flags, task, num_ranks);
  task.shard = shard_depth(placement.mode);
  if (task.sampler != Sampler::torch || !has_ranks(placement.mode)) return task;
  require(task.batch % num_ranks == 0, ErrorCode::Usage, "--sampler",
          "torch gives all ranks equally many rows, and a batch of {} rows cannot be shared evenly "
          "by {} ranks; use a multiple for --batch, or --sampler exact",
          task.batch, num_ranks);
  return task;
}

}  // namespace lockstep::tools
