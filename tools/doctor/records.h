// Reads the records of processes (record/), and finds out which optimizers of which ranks train one
// model together.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/doctor/record/records.h"

namespace lockstep::doctor {

// Facts that the engine reports (engine/trace/observer.h); members are named like the facts'
// fields.
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

// Values of the launcher's variables; absent if it did not set them.
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

// Reads all files of the folder, except an unfinished last line, which a killed process may leave.
Records read_records(const std::filesystem::path& folder);

// The steps of one optimizer.
struct Trainer {
  std::vector<const StepRecord*> steps;  // in order

  const StepRecord& first() const { return *steps.front(); }
  // True if communication moved its gradients or weights, or as many bytes.
  bool exchanges() const;
  // True if it moves weights between steps and no gradients, as local SGD does.
  bool exchanges_weights() const;
};

// One trainer for each rank of a group, by rank; a single one for a program without ranks.
struct Training {
  std::vector<const Trainer*> ranks;
  enum class Link {
    exchange,  // they exchange gradients or weights, or are wrapped in Ddp
    weights,   // they exchange weights now and then: local SGD, between whose averages replicas
               // differ
    none,      // they have equal models, but nothing shows that they belong together
  } link = Link::exchange;

  std::size_t world_size() const { return ranks.size(); }
  bool exchanges() const { return world_size() > 1 && link == Link::exchange; }
  std::size_t num_steps() const;  // that all ranks have made
  const StepRecord& step(std::size_t rank, std::size_t number) const {
    return *ranks[rank]->steps[number];
  }
};

std::vector<Trainer> find_trainers(const Records& records);
// Trainers without partners on the other ranks of their group (for example a reference that rank 0
// trains) form a training of one.
std::vector<Training> find_trainings(const Records& records, const std::vector<Trainer>& trainers);

// True if one of the leaves was wrapped in Ddp in the event's process at its time.
bool is_wrapped(const Records& records, const Origin& when,
                const std::vector<std::uint64_t>& leaves);

// "parameter 2 [10, 128]"
std::string name_of(const StepRecord& step, std::size_t parameter);
// The number of rows in the losses of a step, over all passes.
std::uint64_t num_rows(const StepRecord& step);

}  // namespace lockstep::doctor
