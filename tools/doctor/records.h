// What processes wrote down of themselves (record/), read back.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/doctor/record/values.h"

namespace lockstep::doctor {

// Who did it, and when. Numbers count the events of one process.
struct Origin {
  std::uint64_t process = 0;
  std::uint64_t number = 0;
  std::string group;  // of ranks; empty: none
  int rank = 0;
  int world_size = 1;
};

struct LossRecord {
  std::uint64_t num_rows = 0;
  bool is_mean = true;
  double upstream = 1;                // what backward began with: the factor on this loss
  double value = 0;                   // NaN where it is not known
  std::vector<std::uint64_t> hashes;  // of its rows; empty where they are not known
  std::vector<std::uint64_t> labels;  // of its rows; empty where they are not known
};

struct PartRecord {
  std::uint64_t pass = 0;
  record::Sketch gradient{};
};

struct ParameterRecord {
  std::uint64_t leaf = 0;
  std::string shape;
  std::uint64_t num_elements = 0;
  bool has_gradient = false;
  record::Sketch used{};         // the gradient that the step used
  std::uint64_t arrived = 0;     // number of the event: the last gradient arrived
  std::uint64_t moved = 0;       // number of the event: communication began with it; 0: none
  std::uint64_t unfinished = 0;  // the same of one that nobody waited for
  std::uint64_t weight_moved = 0;
  bool was_discarded = false;
  bool holds_used_one = false;  // the gradient of the step before
  std::uint64_t before = 0;     // hash of the weight
  std::vector<PartRecord> parts;
};

struct StepRecord {
  Origin origin;
  std::uint64_t optimizer = 0;
  std::uint64_t step = 0;
  double learning_rate = 0;
  std::string device;
  bool was_clipped = false;
  std::uint64_t collective_bytes = 0;
  std::uint64_t sent_bytes = 0;
  std::vector<std::uint64_t> buffers;
  std::vector<std::uint64_t> after;  // hashes of the weights
  std::map<std::uint64_t, std::vector<LossRecord>> passes;
  std::map<std::uint64_t, std::uint64_t> reached;  // leaf: elements; not this optimizer's
  std::vector<ParameterRecord> parameters;
};

struct CallRecord {
  Origin origin;  // group and rank are those of the communicator
  std::string operation;
  std::uint64_t sequence = 0;
  std::string text;  // "all_reduce of 100 float32 (average)"
  bool is_message = false;
  bool is_averaging = false;  // a sum or an average
  bool is_done = false;
};

struct WrappedRecord {
  Origin origin;
  std::uint64_t wrapper = 0;
  std::optional<std::uint64_t> gone;  // number of the event
  std::vector<std::uint64_t> leaves;
  std::vector<std::string> inside;
};

struct MovedRecord {
  Origin origin;
  std::string from, to;
  std::vector<std::uint64_t> leaves;
};

struct LoadedRecord {
  Origin origin;
  std::string model;
  std::uint64_t num_loaded = 0;
  std::vector<std::string> missing, unexpected;
};

struct SavedRecord {
  Origin origin;
  std::string path;
};

struct MemberRecord {
  Origin origin;
  std::string module, device;
  std::uint64_t num_bytes = 0;
};

struct SamplerRecord {
  Origin origin;
  std::string kind;
  std::uint64_t num_samples = 0, world_size = 1, rank = 0, seed = 0, epoch = 0;
  bool is_shuffled = false;
};

struct ScheduleRecord {
  Origin origin;
  double base = 0;
  std::uint64_t step = 0;
  double rate = 0;
};

struct IntendedRecord {
  std::string invariant, reason;
};

// Of its launcher's variables; none where it had none.
struct ProcessRecord {
  std::optional<int> rank, local_rank, local_world_size;
};

struct Records {
  std::map<std::uint64_t, ProcessRecord> processes;
  std::vector<StepRecord> steps;
  std::vector<CallRecord> calls;
  std::vector<WrappedRecord> wrapped;
  std::vector<MovedRecord> moved;
  std::vector<LoadedRecord> loaded;
  std::vector<SavedRecord> saved;
  std::vector<MemberRecord> members;
  std::vector<SamplerRecord> samplers;
  std::vector<ScheduleRecord> schedules;
  std::vector<IntendedRecord> intended;
};

// All files of the folder. A last line that a killed process left half written is left out.
Records read_records(const std::filesystem::path& folder);

}  // namespace lockstep::doctor
