// The flags that train and compare share, and their defaults. Each stands once, in a table, from
// which everything else is made: parsing and --help, the check for flags without an effect, the run
// file, the settings that ranks must share, and the flags of a row of `compare` that other
// processes train.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/core/device.h"
#include "tools/flags/help.h"
#include "tools/flags/rank_flags.h"

namespace CLI {
class App;
}

namespace lockstep::tools {

// The flags as they stand on the command line; tools/run/task.h holds their meaning.
struct TrainingFlags : RankFlags {
  std::string device = "auto";
  std::optional<int> devices;
  std::string device_ids;
  std::string virtual_devices;
  std::optional<int> threads_per_device;
  bool graph = false;
  std::string precision = "fp32";
  std::string parallel = "none";
  std::optional<int> stages;
  std::optional<int> micro_batches;
  std::string pipeline_schedule = "1f1b";
  std::optional<int> chunks;
  std::string shard;  // empty: nothing
  std::optional<int> batch;
  std::string per_device_batch;  // one number; a list for compare
  int accumulate = 1;
  std::optional<int> epochs;
  std::optional<int> steps;
  std::string dataset = "digits";
  std::string data_dir = "data";
  std::string vocab_dir;
  std::string model;  // empty: the default of tools/run/task.h
  std::string dtype = "float32";
  std::string optimizer = "sgd";
  std::optional<double> learning_rate;
  std::optional<double> momentum;
  bool nesterov = false;
  std::optional<double> weight_decay;
  std::string schedule = "constant";
  int warmup_steps = 0;
  std::optional<double> clip_norm;
  std::uint64_t seed = 0;
  bool no_shuffle = false;
  std::string augment;
  bool bitwise = false;
  bool sync_batch_norm = false;
  std::string sampler = "exact";
  double bucket_mib = 25;
  double first_bucket_mib = 1;
  std::string init_path;
  bool strip_prefix = false;
  std::string save_path;
  std::string checkpoint_dir;
  int checkpoint_every = 0;
  int keep = 3;
  std::string resume;
  bool resume_with_changes = false;
  std::string log_path;
  std::string json_path;
  std::string trace_path;
  std::string act_as;  // a topology
  std::string slow_motion = "auto";
  bool live = false;
  std::string watch_path;
  std::string row_path;            // the file for a row of `compare` (record/run_file.h), or empty
  std::optional<int> end_after;    // the step where a row is interrupted
  std::vector<std::string> given;  // names of the flags that the user gave
};

// The flags' groups in --help, after the most used ones.
std::vector<FlagGroup> training_groups(std::vector<std::string> most_used);

// Adds all training flags.
void add_training_flags(CLI::App& command, TrainingFlags& flags);

// Adds the training flags except those of `train` alone, such as --devices: compare has a list
// instead.
void add_compare_flags(CLI::App& command, TrainingFlags& flags);

// Adds a single flag, such as --precision, for commands that train nothing.
void add_training_flag(CLI::App& command, TrainingFlags& flags, std::string_view name);

// The words that give a command these flags; none for a flag that has its default.
std::vector<std::string> words_of(const TrainingFlags& flags);

// Reads --stages as --devices where those are not said. Throws Error{Usage} for --stages without as
// many devices, and for a pipeline's schedule as --schedule.
void resolve_pipeline_flags(TrainingFlags& flags);

// Throws Error{Usage} that names the flag if it is refused. why: a sentence without its subject.
void refuse(bool is_refused, std::string_view flag, std::string_view why);

// The member that holds a flag's value.
using FlagMember =
    std::variant<std::string TrainingFlags::*, double TrainingFlags::*, bool TrainingFlags::*,
                 int TrainingFlags::*, std::uint64_t TrainingFlags::*,
                 std::optional<int> TrainingFlags::*, std::optional<double> TrainingFlags::*>;

struct FlagRules {
  std::string value = {};                // how --help names it: FILE; empty: by its type
  std::vector<std::string> one_of = {};  // accepts only these values
  // These name flags that stand earlier in the table.
  std::string excludes = {};
  std::string needs = {};
  enum class Commands { train_and_compare, train } commands = Commands::train_and_compare;
  enum class Ranks { alike, each_its_own } ranks = Ranks::alike;
  // The key in the run file, whose value run/settings.cpp resolves. Empty: the flag is not
  // recorded; nullopt: key().
  std::optional<std::string> recorded_as = std::nullopt;
};

struct TrainingFlag {
  std::string name;  // "--per-device-batch"
  FlagMember member;
  std::string help;
  FlagRules rules = {};

  std::string key() const;  // "per_device_batch"
};

// The table, in the order of the run file.
std::span<const TrainingFlag> training_flags();

}  // namespace lockstep::tools
