#include "tools/cli/idle_flags.h"

#include <algorithm>
#include <array>

#include "datasets/dataset.h"
#include "engine/core/error.h"

namespace lockstep::tools {
namespace {

bool has_no_ranks(const FlagSetting& setting) {
  return std::ranges::count(setting.modes, Mode::ddp) == 0;
}

bool is_adamw(const FlagSetting& setting) {
  return setting.flags.optimizer == "adamw";
}

bool is_bitwise(const FlagSetting& setting) {
  return setting.flags.bitwise;
}

bool is_built_in(const FlagSetting& setting) {
  const datasets::DatasetKind kind = datasets::parse_dataset(setting.flags.dataset).kind;
  return kind == datasets::DatasetKind::digits || kind == datasets::DatasetKind::synthetic;
}

bool is_on_cpu(const FlagSetting& setting) {
  return setting.device == DeviceType::cpu;
}

bool is_on_gpu(const FlagSetting& setting) {
  return setting.device == DeviceType::cuda;
}

bool is_float64(const FlagSetting& setting) {
  return setting.flags.dtype == "float64";
}

bool has_no_trace(const FlagSetting& setting) {
  return setting.flags.trace_path.empty();
}

constexpr std::string_view kForRanks =
    "is for the ranks of ddp, and there are none here; leave it out, or use ddp (train: --parallel "
    "ddp, compare: --modes ddp)";
constexpr std::string_view kForSgd =
    "is of sgd, and adamw has no momentum; leave it out, or use --optimizer sgd";
constexpr std::string_view kForBuckets =
    "is about buckets of gradients, and --bitwise sums each gradient by itself; leave one out";

constexpr std::array kIdleFlags = std::to_array<IdleFlag>({
    {"--ranks", has_no_ranks, kForRanks},
    {"--comm", has_no_ranks, kForRanks},
    {"--nccl-share-gpu", has_no_ranks, kForRanks},
    {"--plan", has_no_ranks, kForRanks},
    {"--transport", has_no_ranks, kForRanks},
    {"--link", has_no_ranks, kForRanks},
    {"--comm-timeout", has_no_ranks, kForRanks},
    {"--bucket-mib", has_no_ranks, kForRanks},
    {"--bucket-mib", is_bitwise, kForBuckets},
    {"--first-bucket-mib", has_no_ranks, kForRanks},
    {"--first-bucket-mib", is_bitwise, kForBuckets},
    {"--momentum", is_adamw, kForSgd},
    {"--nesterov", is_adamw, kForSgd},
    {"--data-dir", is_built_in,
     "is where mnist and fashion-mnist lie, and this --dataset needs no files; leave it out"},
    {"--threads-per-device", is_on_gpu,
     "is for devices of the CPU, and these are GPUs; leave it out, or use --device cpu"},
    {"--matmul-precision", is_on_cpu,
     "is for products on GPUs, and the device is the CPU; leave it out, or use --device cuda"},
    {"--matmul-precision", is_float64,
     "is for products of float32, and --dtype is float64; leave one out"},
    {"--trace-format", has_no_trace,
     "is for the file of --trace, which is not asked for; leave it out, or add --trace FILE"},
});

}  // namespace

std::span<const IdleFlag> idle_flags() {
  return kIdleFlags;
}

void require_effects(const FlagSetting& setting) {
  for (const IdleFlag& idle : kIdleFlags) {
    const bool was_said = std::ranges::count(setting.flags.said, idle.flag) > 0;
    require(!was_said || !idle.is_idle(setting), ErrorCode::Usage, idle.flag,
            "has no effect here: it {}", idle.reason);
  }
}

}  // namespace lockstep::tools
