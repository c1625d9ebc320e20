// Reads what processes wrote down about themselves (record/).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/doctor/record/records.h"

namespace lockstep::doctor {

using record::CallRecord;
using record::LossRecord;
using record::MemberRecord;
using record::Origin;
using record::ParameterRecord;
using record::PartRecord;
using record::StepRecord;

// What the engine tells as facts (engine/trace/observer.h); the members have the fields' names.
struct WrappedRecord {
  Origin origin;
  std::uint64_t wrapper = 0;
  std::optional<std::uint64_t> gone;  // number of the event
  std::vector<std::uint64_t> leaves;
  std::vector<std::string> inside;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WrappedRecord, wrapper, leaves, inside)

struct MovedRecord {
  Origin origin;
  std::string from, to;
  std::vector<std::uint64_t> leaves;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MovedRecord, from, to, leaves)

struct LoadedRecord {
  Origin origin;
  std::string model;
  std::uint64_t loaded = 0;  // tensors
  std::vector<std::string> missing, unexpected;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LoadedRecord, model, loaded, missing, unexpected)

struct SavedRecord {
  Origin origin;
  std::string path;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SavedRecord, path)

struct SamplerRecord {
  Origin origin;
  std::string kind;
  std::uint64_t samples = 0, of_world = 1, of_rank = 0, seed = 0, epoch = 0;
  bool shuffled = false;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SamplerRecord, kind, samples, of_world, of_rank, seed, epoch,
                                   shuffled)

struct ScheduleRecord {
  Origin origin;
  double base = 0;
  std::uint64_t step = 0;
  double rate = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ScheduleRecord, base, step, rate)

struct IntendedRecord {
  Origin origin;
  std::string invariant, reason;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(IntendedRecord, invariant, reason)

// Its launcher's variables; none where it had none.
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
