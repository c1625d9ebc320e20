// The flags that train, compare and the tutorials share: names, checks, defaults. One table, so
// that a flag means the same everywhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
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
  std::string model = "mlp:64-256-10";
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
  std::string sampler = "exact";
  double bucket_mib = 25;
  double first_bucket_mib = 1;
  std::string init_path;
  bool strip_prefix = false;
  std::string save_path;
  std::string log_path;
  std::string json_path;
  std::string trace_path;
  std::string row_path;  // of `compare`
  std::string trace_format = "perfetto";
  std::vector<std::string> said;  // names of the flags that the user gave
};

// Adds all of them but the choice of devices.
void add_training_flags(Command& command, TrainingFlags& flags);

// --matmul-precision, for commands that take no other training flag.
void add_matmul_precision_flag(Command& command, std::string& precision);

// --devices N, --device-ids and --parallel: train; compare has its own lists.
void add_placement_flags(Command& command, TrainingFlags& flags);

}  // namespace lockstep::tools
