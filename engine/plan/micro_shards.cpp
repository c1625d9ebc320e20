#include "engine/plan/micro_shards.h"

#include <bit>

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

std::vector<MicroShardAddition> micro_shard_additions(std::size_t shards_per_device) {
  require(is_allowed_count(shards_per_device), ErrorCode::Usage, "bitwise",
          "a device owns 1, 2, 4 or 8 micro-shards, found {}", shards_per_device);
  std::vector<MicroShardAddition> additions;
  for (std::size_t distance = 1; distance < shards_per_device; distance *= 2) {
    for (std::size_t into = 0; into < shards_per_device; into += 2 * distance) {
      additions.push_back({into, into + distance});
    }
  }
  return additions;
}

}  // namespace lockstep::plan
