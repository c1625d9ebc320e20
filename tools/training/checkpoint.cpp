#include "tools/training/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <system_error>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "tools/cli/training_flags.h"
#include "tools/report/row_file.h"
#include "tools/report/sha256.h"
#include "tools/training/task.h"

namespace lockstep::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kCheckpointSchema = "lockstep.checkpoint/1";
constexpr std::string_view kModel = "model.safetensors";
constexpr std::string_view kOptimizer = "optimizer.safetensors";
constexpr std::string_view kState = "state.json";
constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kUnfinished = ".unfinished-";

// PyTorch's names for the tensors that an optimizer keeps for a parameter: AdamW two, momentum one.
std::vector<std::string> state_names(std::size_t num_tensors) {
  if (num_tensors == 2) return {"exp_avg", "exp_avg_sq"};
  if (num_tensors == 1) return {"momentum"};
  return {};
}

std::string sha256_of(const fs::path& path) {
  Sha256 digest;
  InputFile file(path, "checkpoint");
  std::vector<std::byte> block(1 << 20);
  while (const std::size_t size = file.read(block)) digest.add(std::span(block).first(size));
  return digest.finish();
}

// Names in a folder are on the disk when the folder is.
void sync_folder(const fs::path& folder) {
  const FileDescriptor open(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const bool is_synced = open.is_open() && ::fsync(open.descriptor()) == 0;
  require(is_synced || (open.is_open() && errno == EINVAL), ErrorCode::Io, "checkpoint",
          "cannot sync {}: {}", folder.string(), std::generic_category().message(errno));
}

// Throws Error{Io} for what `work` throws of the file system.
template <typename Work>
void on_disk(const fs::path& path, const Work& work) {
  try {
    work();
  } catch (const fs::filesystem_error& error) {
    fail(ErrorCode::Io, "checkpoint", "{}: {}", path.string(), error.code().message());
  }
}

// The folders of checkpoints, the newest first.
std::vector<fs::path> checkpoints_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(kPrefix) && fs::exists(entry.path() / kState)) found.push_back(entry);
  }
  // By number: a name may have more digits than the others.
  std::ranges::sort(found, [](const fs::path& a, const fs::path& b) {
    const std::string x = a.filename();
    const std::string y = b.filename();
    return x.size() != y.size() ? x.size() > y.size() : x > y;
  });
  return found;
}

// Removes what a killed process left behind, and checkpoints beyond those to keep.
void remove_old(const CheckpointPlan& plan) {
  const std::vector<fs::path> all = checkpoints_in(plan.folder);
  for (std::size_t i = plan.keep; i < all.size(); ++i) {
    // First under another name: a kill must not leave half a checkpoint.
    fs::rename(all[i], plan.folder / fmt::format("{}{}", kUnfinished, all[i].filename().string()));
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(plan.folder)) {
    if (entry.path().filename().string().starts_with(kUnfinished)) fs::remove_all(entry.path());
  }
}

// By the names that they have in the file; without what belongs to a parameter's padding.
nn::StateDict optimizer_tensors(const Checkpoint& checkpoint) {
  nn::StateDict state;
  for (const auto& [name, of_parameter] : checkpoint.optimizer) {
    const auto parameter =
        std::ranges::find(checkpoint.model, name, &nn::StateDict::value_type::first);
    const std::vector<std::string> kinds = state_names(of_parameter.tensors.size());
    for (std::size_t k = 0; k < kinds.size(); ++k) {
      const Tensor& tensor = of_parameter.tensors[k];
      state.emplace_back(kinds[k] + "." + name, tensor.rows(0, parameter->second.size(0)));
    }
  }
  return state;
}

nlohmann::json read_state(const fs::path& folder) {
  const fs::path path = folder / kState;
  const nlohmann::json state =
      nlohmann::json::parse(read_text_file(path, "checkpoint"), nullptr, false);
  const std::string schema =
      state.is_object() ? state.value("schema", std::string()) : std::string();
  require(schema.starts_with("lockstep.checkpoint/"), ErrorCode::Io, "checkpoint",
          "{} is not the state of a checkpoint, or is damaged; resume from another one",
          path.string());
  require(schema == kCheckpointSchema, ErrorCode::Io, "checkpoint",
          "{} has schema {}, and this program reads {}; use the newer program that wrote it",
          path.string(), schema, kCheckpointSchema);
  return state;
}

void require_unchanged(const fs::path& path, const nlohmann::json& state) {
  const std::string expected = state.at("sha256").value(path.filename().string(), std::string());
  require(sha256_of(path) == expected, ErrorCode::Io, "checkpoint",
          "{} is damaged: its SHA-256 is not the one in {}; remove that folder to resume from an "
          "older checkpoint",
          path.string(), kState);
}

Checkpoint read_checkpoint(const fs::path& folder) {
  const nlohmann::json state = read_state(folder);
  Checkpoint checkpoint;
  try {
    for (const std::string_view name : {kModel, kOptimizer}) {
      require_unchanged(folder / name, state);
    }
    checkpoint.step = state.at("step").get<std::uint64_t>();
    checkpoint.settings = state.at("settings");
    checkpoint.bucket_order = state.at("bucket_order").get<std::vector<std::size_t>>();
    checkpoint.model = nn::load_weights(folder / kModel);
    const nn::StateDict tensors = nn::load_weights(folder / kOptimizer);
    const auto find = [&](const std::string& name) {
      return std::ranges::find(tensors, name, &nn::StateDict::value_type::first);
    };
    for (std::size_t i = 0; i < state.at("parameters").size(); ++i) {
      const std::string name = state.at("parameters")[i];
      optim::Optimizer::State& of_parameter =
          checkpoint.optimizer.emplace_back(name, optim::Optimizer::State{}).second;
      of_parameter.num_steps = state.at("optimizer_steps").at(i);
      for (const std::size_t count : {1, 2}) {
        for (const std::string& kind : state_names(count)) {
          const auto found = find(kind + "." + name);
          if (found != tensors.end()) of_parameter.tensors.push_back(found->second);
        }
      }
    }
  } catch (const nlohmann::json::exception&) {
    fail(ErrorCode::Io, "checkpoint", "{} lacks a field, or has one of another kind",
         (folder / kState).string());
  }
  return checkpoint;
}

}  // namespace

void write_checkpoint(const CheckpointPlan& plan, const Checkpoint& checkpoint) {
  const std::string name = fmt::format("{}{:08}", kPrefix, checkpoint.step);
  const fs::path target = plan.folder / name;
  if (fs::exists(target / kState)) return;  // of an earlier run that came as far
  on_disk(target, [&] {
    const fs::path unfinished = plan.folder / fmt::format("{}{}", kUnfinished, name);
    fs::remove_all(unfinished);
    fs::create_directories(unfinished);
    nn::save_weights(unfinished / kModel, checkpoint.model);
    nn::save_weights(unfinished / kOptimizer, optimizer_tensors(checkpoint));
    nlohmann::ordered_json state{{"schema", kCheckpointSchema},
                                 {"step", checkpoint.step},
                                 {"settings", checkpoint.settings},
                                 {"bucket_order", checkpoint.bucket_order},
                                 {"optimizer_steps", nlohmann::json::array()},
                                 {"sha256",
                                  {{kModel, sha256_of(unfinished / kModel)},
                                   {kOptimizer, sha256_of(unfinished / kOptimizer)}}}};
    for (const auto& [parameter, of_parameter] : checkpoint.optimizer) {
      state["parameters"].push_back(parameter);
      state["optimizer_steps"].push_back(of_parameter.num_steps);
    }
    write_file_atomically(unfinished / kState, state.dump(1) + "\n");
    sync_folder(unfinished);
    fs::rename(unfinished, target);
    sync_folder(plan.folder);
    remove_old(plan);
  });
}

nlohmann::ordered_json decisive_settings(const TrainingFlags& flags, const TrainingTask& task) {
  const nlohmann::ordered_json all = flags_json(flags, task);
  nlohmann::ordered_json settings;
  for (const char* name : {"model", "dataset", "dtype", "batch", "seed", "shuffle", "sampler",
                           "augment", "bitwise", "sync_batch_norm", "optimizer", "lr", "momentum",
                           "nesterov", "weight_decay", "schedule", "warmup", "clip_norm"}) {
    settings[name] = all.at(name);
  }
  if (task.optimizer.schedule.kind == optim::Schedule::Kind::cosine)
    settings["steps"] = task.num_steps;
  settings["training_rows"] = task.data->train.num_rows();
  return settings;
}

void require_folder_for_checkpoints(const fs::path& folder, std::size_t num_steps) {
  on_disk(folder, [&] {
    fs::create_directories(folder);
    require(::access(folder.c_str(), W_OK | X_OK) == 0, ErrorCode::Io, "--checkpoint-dir",
            "cannot write to '{}': {}", folder.string(), std::generic_category().message(errno));
    const std::vector<fs::path> all = checkpoints_in(folder);
    if (all.empty()) return;
    const std::string newest = all.front().filename().string().substr(kPrefix.size());
    require(std::stoull(newest) <= num_steps, ErrorCode::Usage, "--checkpoint-dir",
            "'{}' holds checkpoints of another run, up to step {}; go on from there with --resume "
            "auto, or name another folder",
            folder.string(), std::stoull(newest));
  });
}

std::optional<Checkpoint> find_checkpoint(const TrainingFlags& flags, const TrainingTask& task) {
  const bool is_auto = flags.resume == "auto";
  fs::path folder = is_auto ? flags.checkpoint_dir : flags.resume;
  if (!fs::exists(folder / kState)) {
    const std::vector<fs::path> all = checkpoints_in(folder);
    if (all.empty() && is_auto) return std::nullopt;
    require(!all.empty(), ErrorCode::Io, "--resume",
            "there is no checkpoint at '{}'; --resume auto takes the newest of --checkpoint-dir, "
            "or starts from scratch",
            folder.string());
    folder = all.front();
  }
  Checkpoint checkpoint = read_checkpoint(folder);
  const nlohmann::ordered_json settings = decisive_settings(flags, task);
  std::string differences;
  for (const auto& [name, value] : settings.items()) {
    const nlohmann::ordered_json before = checkpoint.settings.value(name, nlohmann::ordered_json());
    if (before == value) continue;
    differences += fmt::format("{}{} {} and not {}", differences.empty() ? "" : ", ", name,
                               before.dump(), value.dump());
  }
  require(differences.empty() || flags.resume_with_changes, ErrorCode::Usage, "--resume",
          "{} was made with {}; say the same, or --resume-with-changes", folder.string(),
          differences);
  return checkpoint;
}

}  // namespace lockstep::tools
