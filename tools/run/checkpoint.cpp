#include "tools/run/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <system_error>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "engine/core/text.h"
#include "tools/flags/training_flags.h"
#include "tools/run/settings.h"
#include "tools/run/sha256.h"
#include "tools/run/task.h"
#include "tools/run/weights_file.h"

namespace lockstep::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kCheckpointSchema = "lockstep.checkpoint/1";
constexpr std::string_view kModel = "model.safetensors";
constexpr std::string_view kOptimizer = "optimizer.safetensors";
constexpr std::string_view kState = "state.json";
constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kUnfinished = ".unfinished-";
constexpr std::size_t kShownDigits = 12;  // digits shown of a SHA-256

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

// "step-00000120", whatever is left in that folder.
bool is_checkpoint_name(std::string_view name) {
  return name.starts_with(kPrefix) && name.size() > kPrefix.size() &&
         std::ranges::all_of(name.substr(kPrefix.size()),
                             [](char c) { return c >= '0' && c <= '9'; });
}

// The folders of checkpoints, the newest first.
std::vector<fs::path> checkpoints_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
    const bool is_named = is_checkpoint_name(entry.path().filename().string());
    if (is_named && entry.is_directory(none)) found.push_back(entry);
  }
  // Sorts by number: a name may have more digits than the others.
  std::ranges::sort(found, [](const fs::path& a, const fs::path& b) {
    const std::string x = a.filename();
    const std::string y = b.filename();
    return x.size() != y.size() ? x.size() > y.size() : x > y;
  });
  return found;
}

// Removes what a killed process left behind, and checkpoints beyond those to keep.
void remove_old(const CheckpointPlan& plan) {
  std::vector<fs::path> all = checkpoints_in(plan.folder);
  std::erase_if(all, [](const fs::path& folder) { return !fs::exists(folder / kState); });
  for (std::size_t i = plan.keep; i < all.size(); ++i) {
    // First under another name: a kill must not leave half a checkpoint.
    fs::rename(all[i], plan.folder / fmt::format("{}{}", kUnfinished, all[i].filename().string()));
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(plan.folder)) {
    if (entry.path().filename().string().starts_with(kUnfinished)) fs::remove_all(entry.path());
  }
}

// The tensors under their names in the file, without what belongs to a parameter's padding.
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

// Damage is an Error{State}: the caller adds how to go on.
void require_file(const fs::path& path) {
  require(fs::exists(path), ErrorCode::State, "checkpoint", "{} is damaged: {}", path.string(),
          std::generic_category().message(ENOENT));
}

nlohmann::json read_state(const fs::path& folder) {
  const fs::path path = folder / kState;
  require_file(path);
  const nlohmann::json state =
      nlohmann::json::parse(read_text_file(path, "checkpoint"), nullptr, false);
  const std::string schema =
      state.is_object() && state.contains("schema") && state["schema"].is_string()
          ? state["schema"].get<std::string>()
          : std::string();
  require(schema.starts_with("lockstep.checkpoint/"), ErrorCode::State, "checkpoint",
          "{} is not the state of a checkpoint, or is damaged", path.string());
  require(schema == kCheckpointSchema, ErrorCode::Io, "checkpoint",
          "{} has schema {}, and this program reads {}; use the newer program that wrote it",
          path.string(), schema, kCheckpointSchema);
  return state;
}

void require_unchanged(const fs::path& path, const nlohmann::json& state) {
  require_file(path);
  const std::string expected = state.at("sha256").value(path.filename().string(), std::string());
  require(sha256_of(path) == expected, ErrorCode::State, "checkpoint",
          "{} is damaged: its SHA-256 is not the one in {}", path.string(), kState);
}

Checkpoint read_checkpoint(const fs::path& folder) {
  const nlohmann::json state = read_state(folder);
  Checkpoint checkpoint;
  checkpoint.folder = folder.string();
  try {
    for (const std::string_view name : {kModel, kOptimizer}) {
      require_unchanged(folder / name, state);
    }
    checkpoint.step = state.at("step").get<std::uint64_t>();
    checkpoint.settings = state.at("settings");
    static_cast<void>(checkpoint.settings.at("batch").get<std::size_t>());
    checkpoint.bucket_order = state.at("bucket_order").get<std::vector<std::size_t>>();
    checkpoint.model = nn::load_weights(folder / kModel);
    checkpoint.metadata = checkpoint::read_metadata(folder / kModel);
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
    fail(ErrorCode::State, "checkpoint", "{} lacks a field, or has one of another kind",
         (folder / kState).string());
  }
  return checkpoint;
}

bool is_whole(const fs::path& folder) {
  try {
    read_checkpoint(folder);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Advises how to go on where a checkpoint is damaged. word: that of --resume.
std::string way_on(const fs::path& damaged, const std::string& word) {
  const std::vector<fs::path> all = checkpoints_in(damaged.parent_path());
  const auto whole = std::ranges::find_if(
      all, [&](const fs::path& other) { return other != damaged && is_whole(other); });
  const bool is_auto = word == "auto";
  if (whole == all.end()) {
    return fmt::format("no other checkpoint is whole: {} to start from scratch",
                       !is_auto          ? "leave out --resume"
                       : all.size() == 1 ? "remove that folder"
                                         : "remove all of them");
  }
  if (!is_auto) return fmt::format("resume from another one: --resume {}", whole->string());
  std::string others;
  for (auto other = all.begin(); other != whole; ++other) {
    if (*other != damaged) others += fmt::format(" and {}", other->string());
  }
  return fmt::format("remove that folder{} to resume from an older checkpoint, {}", others,
                     whole->string());
}

Checkpoint read_or_advise(const fs::path& folder, const std::string& word) {
  try {
    return read_checkpoint(folder);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::State) throw;
    fail(error.code(), error.operation(), "{}; {}", error.message(), way_on(folder, word));
  }
}

std::string digest_of(const datasets::Dataset& data) {
  Sha256 digest;
  for (const data::LabelledRows* rows : {&data.train, &data.test}) {
    digest.add(std::as_bytes(std::span(rows->features)));
    digest.add(std::as_bytes(std::span(rows->labels)));
    digest.add(std::as_bytes(std::span(rows->tokens)));
  }
  return digest.finish();
}

// Settings that change by themselves when another one does.
bool follows(const std::string& name, const nlohmann::json& differing) {
  const bool is_of_optimizer =
      name == "lr" || name == "momentum" || name == "nesterov" || name == "weight_decay";
  if (is_of_optimizer) return differing.contains("optimizer");
  if (name == "model" || name == "data_sha256") return differing.contains("dataset");
  const bool is_of_data = name == "training_rows" || name == "characters" || name == "vocabulary";
  return is_of_data && (differing.contains("dataset") || differing.contains("data_sha256"));
}

// "batch 64 and not 32, ..."; empty if nothing differs.
std::string describe_differences(const nlohmann::ordered_json& before, const TrainingFlags& flags,
                                 const nlohmann::ordered_json& now) {
  nlohmann::json differing;
  for (const auto& [name, value] : now.items()) {
    // An older program's checkpoint lacks what it did not write.
    if (before.contains(name) && before[name] != value) differing[name] = value;
  }
  std::string text;
  for (const auto& [name, value] : now.items()) {
    if (!differing.contains(name)) continue;
    std::string flag = "--" + name;
    std::ranges::replace(flag, '_', '-');
    const bool is_said = std::ranges::find(flags.given, flag) != flags.given.end();
    if (!is_said && follows(name, differing)) continue;
    const auto word = [&, is_digest = name == "data_sha256"](const nlohmann::ordered_json& json) {
      return is_digest ? json.dump().substr(1, kShownDigits) : shown(json.dump());
    };
    text += fmt::format(
        "{}{} {} and not {}", text.empty() ? "" : ", ",
        name == "data_sha256" ? fmt::format("other contents of {}, SHA-256", flags.dataset) : name,
        word(before[name]), word(value));
  }
  return text;
}

}  // namespace

void write_checkpoint(const CheckpointPlan& plan, const Checkpoint& checkpoint) {
  const std::string name = fmt::format("{}{:08}", kPrefix, checkpoint.step);
  const fs::path target = plan.folder / name;
  if (fs::exists(target / kState)) return;  // an earlier run came as far
  on_disk(target, [&] {
    const fs::path unfinished = plan.folder / fmt::format("{}{}", kUnfinished, name);
    fs::remove_all(unfinished);
    fs::create_directories(unfinished);
    nn::save_weights(unfinished / kModel, checkpoint.model, checkpoint.metadata);
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
  settings["data_sha256"] = digest_of(*task.data);
  settings["characters"] = task.data->characters;
  settings["vocabulary"] = task.data->vocabulary;
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
  if (!fs::exists(folder / kState) && !fs::exists(folder / kModel)) {
    const std::vector<fs::path> all = checkpoints_in(folder);
    if (all.empty() && is_auto) return std::nullopt;
    require(!all.empty(), ErrorCode::Io, "--resume",
            "there is no checkpoint at '{}'; --resume auto takes the newest of --checkpoint-dir, "
            "or starts from scratch",
            folder.string());
    folder = all.front();
  }
  Checkpoint checkpoint = read_or_advise(folder, flags.resume);
  const datasets::Dataset& data = *task.data;
  if (task.is_text()) {
    require_same_tokens({ErrorCode::Usage, "--resume", folder.string(), checkpoint.metadata},
                        {data.characters, data.vocabulary, data.train.name},
                        "give the text that it was trained on");
  }
  const std::string differences =
      describe_differences(checkpoint.settings, flags, decisive_settings(flags, task));
  require(differences.empty() || flags.resume_with_changes, ErrorCode::Usage, "--resume",
          "{} was made with {}; say the same, or --resume-with-changes", folder.string(),
          differences);
  if (!checkpoint.settings.contains("data_sha256")) {
    note_once("--resume", fmt::format("{} is an older program's, which names its data but not what "
                                      "was in them",
                                      folder.string()));
  }
  if (!differences.empty()) {
    checkpoint.differences = fmt::format("{} was made with {}", folder.string(), differences);
  }
  return checkpoint;
}

}  // namespace lockstep::tools
