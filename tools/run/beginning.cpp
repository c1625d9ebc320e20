#include "tools/run/beginning.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/core/error.h"
#include "engine/nn/state_dict.h"
#include "tools/flags/numbers.h"
#include "tools/run/model.h"
#include "tools/run/weights_file.h"
#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

std::shared_ptr<nn::Module> model_on_host(const TrainingTask& task) {
  return nn::make_model(task.model, task.model_data(), task.seed, task.dtype);
}

// Says once per job which prefix it removed; says nothing if the names fit.
void strip_prefix_of_weights(TrainingTask& task, const std::string& path) {
  const std::shared_ptr<nn::Module> model = model_on_host(task);
  const std::string prefix = nn::find_prefix(*task.initial_weights, *model);
  if (prefix.empty()) return;
  task.initial_weights = nn::strip_prefix(*task.initial_weights, prefix);
  note_once("--strip-prefix", fmt::format("took \"{}\" off the names in {}", prefix, path));
}

// Says how a GPT's weights differ from those that Lockstep makes.
void note_gpt_weights(const TrainingTask& task, std::size_t num_biases) {
  if (num_biases > 0) {
    note_once("--init", fmt::format("the weights lack {} biases, which start at 0 and are trained",
                                    num_biases));
  }
  const std::size_t num_tokens = task.data->train.num_classes;
  if (task.table_rows <= num_tokens) return;
  note_once("--init", fmt::format("the file's table has {} rows for {} tokens, and stays so",
                                  task.table_rows, num_tokens));
}

// Returns the number of biases that the weights lack.
std::size_t take_gpt_weights(TrainingTask& task) {
  nn::StateDict& weights = *task.initial_weights;
  weights = nn::gpt_state(weights, nn::parse_model(task.model).gpt.layers);
  const Tokens kind = task.data->characters.empty() ? Tokens::vocabulary : Tokens::characters;
  task.table_rows = rows_of_table(weights, task.data->train.num_classes, kind);
  return nn::add_missing_biases(weights);
}

// The settings that --resume-with-changes let differ, for errors.
std::string origin_of(const Checkpoint& checkpoint) {
  return checkpoint.differences.empty() ? checkpoint.folder : checkpoint.differences;
}

// Momentum may begin at 0, and any optimizer goes on from its own state, but not from another's.
void require_fitting_optimizer(const TrainingTask& task, const Checkpoint& checkpoint) {
  std::size_t has = 0;
  for (const auto& [name, state] : checkpoint.optimizer) has = std::max(has, state.tensors.size());
  const std::size_t needs = num_state_tensors(task.optimizer);
  require(
      has == needs || (has == 0 && needs == 1), ErrorCode::Usage, "--resume",
      "{}, and its optimizer kept {} per parameter where {} needed; say the same, or start from "
      "its weights: --init {}/model.safetensors",
      origin_of(checkpoint), count_text(has, "tensor"),
      needs == 1 ? "1 is" : fmt::format("{} are", needs), checkpoint.folder);
}

// The rows that a run has behind it after so many steps.
std::size_t rows_behind(std::size_t steps, std::size_t batch, std::size_t num_rows) {
  const std::size_t per_epoch = (num_rows + batch - 1) / batch;
  return steps / per_epoch * num_rows + std::min(steps % per_epoch * batch, num_rows);
}

}  // namespace

void take_weights(TrainingTask& task, const TrainingFlags& flags) {
  const WeightsFile file{.path = flags.init_path,
                         .metadata = checkpoint::read_metadata(flags.init_path)};
  const datasets::Dataset& data = *task.data;
  if (task.is_text()) {
    require_same_tokens(
        file, {data.characters, data.vocabulary, data.train.name},
        "use a text with the same characters or vocabulary, or start without --init");
  }
  task.initial_weights = nn::load_weights(flags.init_path);
  if (flags.strip_prefix) strip_prefix_of_weights(task, flags.init_path);
  try {
    if (task.is_text()) note_gpt_weights(task, take_gpt_weights(task));
    nn::load_state_dict(*model_on_host(task), *task.initial_weights);
  } catch (const Error& error) {
    fail(error.code(), "--init", "does not fit --model {}: {}", task.model, error.what());
  }
  require_same_model(file, task.model);
}

void take_checkpoints(TrainingTask& task, const TrainingFlags& flags) {
  if (flags.checkpoint_dir.empty() && flags.resume.empty()) return;
  require(flags.resume != "auto" || !flags.checkpoint_dir.empty(), ErrorCode::Usage, "--resume",
          "auto takes the newest checkpoint of --checkpoint-dir; give that folder, too");
  task.settings = decisive_settings(flags, task);
  if (flags.end_after) task.end_after = static_cast<std::size_t>(*flags.end_after);
  if (!flags.checkpoint_dir.empty()) {
    const bool is_said = flags.checkpoint_every != 0;
    task.checkpoints = {flags.checkpoint_dir,
                        is_said ? require_positive("--checkpoint-every", flags.checkpoint_every)
                                : task.steps_per_epoch(),
                        require_positive("--keep", flags.keep)};
  }
  std::optional<Checkpoint> found;
  if (!flags.resume.empty()) found = find_checkpoint(flags, task);
  if (!flags.checkpoint_dir.empty()) {
    require_folder_for_checkpoints(flags.checkpoint_dir, found ? found->step : 0);
  }
  if (!found) return;
  require(found->step <= task.num_steps, ErrorCode::Usage, "--resume",
          "the checkpoint has {} steps behind it, and this run ends after {}; ask for more --steps "
          "or --epochs{}{}",
          found->step, task.num_steps, found->differences.empty() ? "" : ": ", found->differences);
  require_fitting_optimizer(task, *found);
  task.initial_weights = found->model;
  try {
    if (task.is_text()) take_gpt_weights(task);
    nn::load_state_dict(*model_on_host(task), *task.initial_weights);
  } catch (const Error& error) {
    fail(ErrorCode::Usage, "--resume", "{}, so its weights do not fit {}; say the same. {}",
         origin_of(*found), task.model, error.message());
  }
  task.resumed = std::make_shared<const Checkpoint>(*std::move(found));
}

std::string describe_moved_place(const TrainingTask& task) {
  const nlohmann::ordered_json& before = task.resumed->settings;
  const std::size_t num_rows = task.data->train.num_rows();
  const std::size_t step = task.first_step();
  const bool is_within_epoch = rows_behind(step, task.batch, num_rows) % num_rows != 0;
  for (const std::string name : {"seed", "shuffle", "sampler", "data_sha256", "training_rows"}) {
    if (!before.contains(name) || before[name] == task.settings[name]) continue;
    if (!is_within_epoch) return {};
    return fmt::format(
        "some rows are seen twice in this epoch and some not at all: {} differs from the "
        "checkpoint's, so they come in another order",
        name == "data_sha256" ? "the data" : name);
  }
  const std::size_t batch = before.value("batch", task.batch);
  const std::size_t seen = rows_behind(step, std::max<std::size_t>(1, batch), num_rows);
  const std::size_t place = rows_behind(step, task.batch, num_rows);
  if (seen == place) return {};
  return fmt::format(
      "{} {}: step {} begins at row {} with a batch of {}, and the checkpoint ended at row {} with "
      "{}",
      count_text(place > seen ? place - seen : seen - place, "row"),
      place > seen ? "are skipped" : "are seen a second time", step, place, task.batch, seen,
      batch);
}

}  // namespace lockstep::tools
