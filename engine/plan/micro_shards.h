// The micro-shard plan: how the bitwise mode gets the same bits on 1, 2, 4 and 8 devices.
//
// Floating-point addition is not associative, so a sum over a batch depends on how the batch was
// cut. Here the cut does not depend on the number of devices: every global batch is cut into 8
// micro-shards, each device computes the gradients of its micro-shards one by one, and gradients
// are added in one fixed binary tree over the 8:
//   ((0+1) + (2+3)) + ((4+5) + (6+7))
// A device owns neighbouring micro-shards, so that the lower levels of the tree lie inside devices
// and the upper ones between them. Between D ranks, halving_doubling_all_reduce(D, ...) adds in
// exactly the upper levels' order.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "engine/plan/scatter.h"

namespace lockstep::plan {

inline constexpr std::size_t kNumMicroShards = 8;

// Micro-shard `from`'s gradients, including everything that was added to them before, are added to
// those of micro-shard `into`.
struct MicroShardAddition {
  std::size_t into = 0;
  std::size_t from = 0;

  bool operator==(const MicroShardAddition&) const = default;
};

struct MicroShardPlan {
  std::size_t num_rows = 0;
  std::size_t num_devices = 1;
  // Cut like a scatter over 8 devices; the last ones may be empty (their gradients are zeros).
  std::array<ScatterPart, kNumMicroShards> shards;

  std::size_t shards_per_device() const { return kNumMicroShards / num_devices; }
  // Device d owns the micro-shards d * shards_per_device() ... (d + 1) * shards_per_device() - 1.
  // All rows of a device's micro-shards, as one part whose index is the device.
  // REQUIRES: device < num_devices.
  ScatterPart rows_of_device(std::size_t device) const;
};

// Throws Error{Usage} unless num_devices is 1, 2, 4 or 8.
MicroShardPlan micro_shard_plan(std::size_t num_rows, std::size_t num_devices);

// The additions inside one device, level by level, numbered by its own micro-shards 0 ...
// shards_per_device - 1; the sum ends up in 0. Those of 8 are the whole tree.
// Throws Error{Usage} unless shards_per_device is 1, 2, 4 or 8.
std::vector<MicroShardAddition> micro_shard_additions(std::size_t shards_per_device);

}  // namespace lockstep::plan
