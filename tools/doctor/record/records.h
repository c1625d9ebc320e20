// A process's records of its optimizer's steps, calls and replicas. The recorder fills these
// structs, and the doctor reads the same ones; the names of their members are the keys of the JSON.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/doctor/record/event.h"

namespace lockstep::doctor {

// The rank and the time of an event. Numbers count the events of one process.
struct Origin {
  std::uint64_t process = 0;
  std::uint64_t number = 0;
  std::string group;  // the ranks' group; empty: none
  int rank = 0;
  int world_size = 1;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Origin, process, number, group, rank, world_size)

struct LossRecord {
  std::uint64_t num_rows = 0;
  bool is_mean = true;                // or the sum over rows
  double upstream = 1;                // the factor on this loss with which backward began
  double value = 0;                   // NaN if unknown
  std::vector<std::uint64_t> hashes;  // one for each row; empty if unknown
  std::vector<std::uint64_t> labels;  // one for each row; empty if not int64
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LossRecord, num_rows, is_mean, upstream, value, hashes, labels)

// The share of a leaf's gradient that one backward pass added.
struct PartRecord {
  std::uint64_t pass = 0;
  Sketch gradient{};
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PartRecord, pass, gradient)

struct ParameterRecord {
  std::uint64_t leaf = 0;
  std::string shape;
  std::uint64_t num_elements = 0;
  bool has_gradient = false;
  std::uint64_t before = 0;      // hash of the weight
  Sketch used{};                 // the gradient that the step used
  std::uint64_t arrived = 0;     // number of the event: the last gradient arrived
  std::uint64_t moved = 0;       // number of the event: communication began with it; 0: none
  std::uint64_t unfinished = 0;  // the same for a call without a wait
  std::uint64_t weight_moved = 0;
  bool was_discarded = false;     // some of the gradient was cleared before a step used it
  bool holds_used_one = false;    // true if it was added to a gradient that a step had used
  std::vector<PartRecord> parts;  // since the gradient was cleared
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ParameterRecord, leaf, shape, num_elements, has_gradient, before,
                                   used, arrived, moved, unfinished, weight_moved, was_discarded,
                                   holds_used_one, parts)

struct StepRecord {
  Origin origin;
  std::uint64_t optimizer = 0;
  std::uint64_t step = 0;
  double learning_rate = 0;
  std::string device;
  bool was_clipped = false;
  std::uint64_t collective_bytes = 0;  // collectives' buffers since the last step
  std::uint64_t sent_bytes = 0;        // messages of send
  std::vector<std::uint64_t> buffers;
  std::vector<std::uint64_t> after;  // hashes of the weights
  std::map<std::uint64_t, std::vector<LossRecord>> passes;
  std::map<std::uint64_t, std::uint64_t> reached;  // leaf: elements; not this optimizer's
  std::vector<ParameterRecord> parameters;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StepRecord, optimizer, step, learning_rate, device, was_clipped,
                                   collective_bytes, sent_bytes, buffers, after, passes, reached,
                                   parameters)

struct CallRecord {
  Origin origin;  // group and rank are those of the communicator
  std::string operation;
  std::uint64_t sequence = 0;
  std::string text;  // "all_reduce of 100 float32 (average)"
  bool is_message = false;
  bool is_averaging = false;  // a sum or an average
  bool is_done = false;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CallRecord, operation, sequence, text, is_message, is_averaging)

// forward() of a replica changed plain members of a module.
struct MemberRecord {
  Origin origin;
  std::string module, device;
  std::uint64_t num_bytes = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MemberRecord, module, device, num_bytes)

}  // namespace lockstep::doctor
