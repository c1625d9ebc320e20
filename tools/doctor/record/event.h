// Records one event as one line of JSON in this process's file of the folder LOCKSTEP_AUDIT. A line
// holds tensors as hashes, which tell two apart, and gradients as sketches.
//
//   {"event":"saved","process":4711,"number":12,"group":"4711.1","rank":1,"world_size":2,...}
//
// number: counts this process's events in the order in which they happened. Lines are written at
// once, so that a killed process leaves a record. A process that forks gets a file of its own. If
// the file cannot be written, one line on stderr says so, recording stops, and the program goes on.
//
// A sketch is linear: the sketch of a sum is the sum of the sketches, whatever the tensors' sizes.
// So the sketches of all ranks' gradients tell what the average must be. It is made of at most
// kNumSampled elements, always the same ones, so it costs microseconds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/core/views.h"
#include "engine/trace/observer.h"

namespace lockstep::doctor {

inline constexpr std::size_t kSketchSize = 16;
inline constexpr std::size_t kNumSampled = 256;

using Sketch = std::array<double, kSketchSize>;

// The sums of the sampled elements with kSketchSize patterns of signs; zeros for no elements and
// for dtypes other than float32 and float64.
Sketch sketch_of(ConstTensorView values);
bool is_zero(const Sketch& sketch);

// Hashes all bytes up to 64 KiB; of larger tensors, their end and 8192 words spread over them. 0
// for no bytes.
std::uint64_t hash_of(ConstTensorView values);
// One hash for each row of `rows`.
std::vector<std::uint64_t> hash_rows(ConstTensorView values, std::size_t num_rows);

// True if LOCKSTEP_AUDIT names a folder.
bool is_wanted();

// The number of the next event; comparing numbers tells which event came first. Any thread.
std::uint64_t next_number();

// --- groups of ranks ---
// A group has a number in each process, and a name that all its processes share.

// A name that no other group has, in this process or another one of this machine.
std::string new_group_name();
// Returns the number of the group, 1 or more.
std::uint32_t register_group(const trace::RankGroup& group);

struct Rank {
  std::uint32_t group = 0;  // its number; 0: no group, so one rank alone
  std::string group_name;
  int rank = 0;
  int world_size = 1;
};
// The rank that the calling thread works for: from its ThreadContext, else its process's.
Rank current_rank();
Rank rank_of(std::uint32_t group, int rank);

// Writes the event of a rank, and returns its number. fields: an object.
std::uint64_t write_event(const char* name, nlohmann::json fields, const Rank& by = current_rank());

}  // namespace lockstep::doctor
