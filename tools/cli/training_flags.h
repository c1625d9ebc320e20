// The flags that train and compare share, and their defaults. How each is said, explained and
// recorded stands in one table (training_flag_table.h), so that it means the same everywhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/ranks/rank_flags.h"

namespace lockstep::tools {

class Command;  // tools/cli/command.h

// As they stand on the command line; tools/training/task.h holds what they mean.
struct TrainingFlags : RankFlags {
  std::string device = "auto";
  std::optional<int> devices;
  std::string device_ids;
  std::string virtual_devices;
  std::optional<int> threads_per_device;
  bool graph = false;
  std::string matmul_precision = "highest";
  std::string parallel = "none";
  std::optional<int> batch;
  std::string per_device_batch;  // one number; a list for compare
  std::optional<int> epochs;
  std::optional<int> steps;
  std::string dataset = "digits";
  std::string data_dir = "data";
  std::string model;  // empty: that of tools/training/task.h
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
  bool bitwise = false;
  bool sync_batch_norm = false;
  std::string sampler = "exact";
  double bucket_mib = 25;
  double first_bucket_mib = 1;
  std::string init_path;
  bool strip_prefix = false;
  std::string save_path;
  std::string log_path;
  std::string json_path;
  std::string trace_path;
  std::string act_as;  // a topology
  std::string slow_motion = "auto";
  bool watch = false;
  std::string row_folder;         // of a row of `compare` (report/row_file.h); empty elsewhere
  std::vector<std::string> said;  // names of the flags that the user gave
};

// All of them.
void add_training_flags(Command& command, TrainingFlags& flags);

// All but those of `train` alone, such as --devices, of which compare has a list of its own.
void add_compare_flags(Command& command, TrainingFlags& flags);

// For commands that train nothing: one alone, such as --matmul-precision, and those of the ranks.
void add_training_flag(Command& command, TrainingFlags& flags, std::string_view name);
void add_rank_flags(Command& command, RankFlags& flags);

}  // namespace lockstep::tools
