#include "engine/plan/micro_shards.h"

#include <fmt/format.h>

#include <bit>
#include <iterator>

#include "engine/core/error.h"

namespace lockstep::plan {
namespace {

bool is_allowed_count(std::size_t count) {
  return std::has_single_bit(count) && count <= kNumMicroShards;
}

}  // namespace

ScatterPart MicroShardPlan::rows_of_device(std::size_t device) const {
  const std::size_t first = device * shards_per_device();
  ScatterPart part{device, shards[first].offset, 0};
  for (std::size_t i = 0; i < shards_per_device(); ++i) part.size += shards[first + i].size;
  return part;
}

MicroShardPlan micro_shard_plan(std::size_t num_rows, std::size_t num_devices) {
  require(is_allowed_count(num_devices), ErrorCode::Usage, "bitwise",
          "the bitwise mode needs 1, 2, 4 or 8 devices, found {}", num_devices);
  MicroShardPlan plan{num_rows, num_devices, {}};
  for (std::size_t i = 0; i < kNumMicroShards; ++i) plan.shards[i] = {i, num_rows, 0};
  for (const ScatterPart& part : scatter_plan(num_rows, kNumMicroShards).parts) {
    plan.shards[part.index] = part;
  }
  return plan;
}

std::vector<MicroShardAddition> micro_shard_additions() {
  return micro_shard_additions_inside(kNumMicroShards);
}

std::vector<MicroShardAddition> micro_shard_additions_inside(std::size_t shards_per_device) {
  require(is_allowed_count(shards_per_device), ErrorCode::Usage, "bitwise",
          "a device owns 1, 2, 4 or 8 micro-shards, found {}", shards_per_device);
  std::vector<MicroShardAddition> additions;
  std::size_t level = 0;
  for (std::size_t distance = 1; distance < shards_per_device; distance *= 2, ++level) {
    for (std::size_t into = 0; into < shards_per_device; into += 2 * distance) {
      additions.push_back({level, into, into + distance});
    }
  }
  return additions;
}

std::string to_string(const MicroShardPlan& plan) {
  std::string text = fmt::format("{} rows in {} micro-shards on {} devices\n", plan.num_rows,
                                 kNumMicroShards, plan.num_devices);
  const auto out = std::back_inserter(text);
  for (const ScatterPart& shard : plan.shards) {
    fmt::format_to(out, "  micro-shard {} on device {}: rows [{}, {})\n", shard.index,
                   plan.device_of(shard.index), shard.offset, shard.offset + shard.size);
  }
  for (const MicroShardAddition& addition : micro_shard_additions()) {
    const std::size_t to_device = plan.device_of(addition.into);
    const std::size_t from_device = plan.device_of(addition.from);
    fmt::format_to(out, "  level {}: {} += {}  ", addition.level, addition.into, addition.from);
    if (to_device == from_device) {
      fmt::format_to(out, "inside device {}\n", to_device);
    } else {
      fmt::format_to(out, "from device {} to device {}\n", from_device, to_device);
    }
  }
  return text;
}

}  // namespace lockstep::plan
