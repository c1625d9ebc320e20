// Moments of a training run in files, from which it goes on.
//
//   DIR/step-00000120/model.safetensors      weights and buffers, as --save writes them
//                     optimizer.safetensors  "momentum.0.weight"; "exp_avg.0.weight", ...
//                     state.json             the step, what decides the numbers, SHA-256 of both
//                                            and of the data
//
// A folder is written under another name, synced and renamed: whenever the process is killed, it is
// there whole or not at all. Ranks need not be as many as those that wrote it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/nn/state_dict.h"
#include "engine/optim/optimizer.h"

namespace lockstep::tools {

struct TrainingFlags;
struct TrainingTask;

// --checkpoint-dir, --checkpoint-every and --keep.
struct CheckpointPlan {
  std::filesystem::path folder;
  std::size_t every = 0;  // steps; the last step too
  std::size_t keep = 0;   // folders; older ones are removed
};

struct Checkpoint {
  std::uint64_t step = 0;  // so many are done
  // --batch, --seed and whatever else decides the numbers, by the names of the run file.
  nlohmann::ordered_json settings;
  std::vector<std::size_t> bucket_order;  // DDP's parameters; empty elsewhere
  nn::StateDict model;
  std::vector<std::pair<std::string, optim::Optimizer::State>> optimizer =
      {};                              // a pair for each parameter
  checkpoint::Metadata metadata = {};  // the model file's, as --save writes it
  // If it was read: its folder, and how its settings differ from the run's, as in "kept was
  // made with momentum 0.9 and not 0".
  std::string folder = {};
  std::string differences = {};
};

// The settings of a run. REQUIRES: its data was loaded.
nlohmann::ordered_json decisive_settings(const TrainingFlags& flags, const TrainingTask& task);

// Throws Error{Io} when something cannot be written; older checkpoints are then still there.
void write_checkpoint(const CheckpointPlan& plan, const Checkpoint& checkpoint);

// Makes the folder. Throws Error{Usage} if it holds a checkpoint of more steps than those that the
// run has behind it: then that of another run; Error{Io} if nothing can be written there.
void require_folder_for_checkpoints(const std::filesystem::path& folder, std::size_t num_steps);

// For --resume WORD: auto (the newest of --checkpoint-dir; nothing where there is none), a
// checkpoint, or a folder of them.
// Throws Error{Io} where there is none, and for a schema of a newer program; Error{State} that
// names the file that is missing, truncated or changed, and the newest checkpoint that is whole.
// Throws Error{Usage} naming the settings that differ, unless --resume-with-changes allows them; it
// never allows a text of other characters or another vocabulary.
std::optional<Checkpoint> find_checkpoint(const TrainingFlags& flags, const TrainingTask& task);

}  // namespace lockstep::tools
