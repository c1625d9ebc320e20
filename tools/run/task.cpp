#include "tools/run/task.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "datasets/text.h"
#include "engine/core/error.h"
#include "engine/core/files.h"
#include "tools/flags/numbers.h"
#include "tools/flags/output_path.h"
#include "tools/run/beginning.h"
#include "tools/run/model.h"
#include "tools/run/pipeline.h"
#include "tools/run/placement.h"
#include "tools/run/slow_motion.h"
#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

constexpr std::size_t kDefaultBatch = 64;
constexpr std::size_t kLargestBatch = std::numeric_limits<int>::max();

OptimizerSettings make_optimizer_settings(const TrainingFlags& flags) {
  OptimizerSettings settings;
  const bool is_sgd = flags.optimizer == "sgd";
  settings.kind = is_sgd ? OptimizerKind::sgd : OptimizerKind::adamw;
  settings.learning_rate =
      require_not_negative("--lr", flags.learning_rate.value_or(is_sgd ? 0.1 : 1e-3));
  settings.weight_decay =
      require_not_negative("--weight-decay", flags.weight_decay.value_or(is_sgd ? 0.0 : 1e-2));
  settings.momentum = require_not_negative("--momentum", flags.momentum.value_or(0.9));
  require(!flags.nesterov || settings.momentum > 0, ErrorCode::Usage, "--nesterov",
          "needs a --momentum above 0, found 0");
  if (flags.nesterov) settings.momentum_kind = optim::SgdOptions::Kind::nesterov;
  require(flags.warmup_steps >= 0, ErrorCode::Usage, "--warmup", "must be at least 0, found {}",
          flags.warmup_steps);
  if (flags.clip_norm) {
    settings.clip_norm = require_positive("--clip-norm", *flags.clip_norm);
  }
  return settings;
}

std::size_t batch_of(const TrainingFlags& flags, std::size_t num_devices) {
  if (flags.per_device_batch.empty()) {
    return require_positive("--batch", flags.batch.value_or(static_cast<int>(kDefaultBatch)));
  }
  const std::vector<std::size_t> rows = parse_list("--per-device-batch", flags.per_device_batch);
  require(rows.size() == 1, ErrorCode::Usage, "--per-device-batch",
          "expected one number, found '{}'; compare takes several", flags.per_device_batch);
  require(rows[0] >= 1 && rows[0] <= kLargestBatch, ErrorCode::Usage, "--per-device-batch",
          "must be at least 1 and at most {}, found {}", kLargestBatch, rows[0]);
  return rows[0] * num_devices;
}

data::Augmentation augmentation_of(const TrainingFlags& flags, const TrainingTask& task) {
  require(flags.augment.empty() || nn::parse_model(task.model).takes_images(), ErrorCode::Usage,
          "--augment",
          "crops and flips images, which '{}' does not take; use a model for images, such as lenet",
          task.model);
  return {.crop = flags.augment.find("crop") != std::string::npos,
          .flip = flags.augment.find("flip") != std::string::npos};
}

nn::ModelData::Values row_values(bool text) {
  return text ? nn::ModelData::Values::tokens : nn::ModelData::Values::numbers;
}

nn::ModelData data_for(const nn::ModelSpec& spec, const Shape& image, std::size_t num_features,
                       std::size_t num_classes, nn::ModelData::Values values) {
  const bool is_image = spec.takes_images() && image.num_dims() == 3;
  return {is_image ? image : Shape{num_features}, num_classes, values};
}

// Counts weights, gradients, momentum and the weights kept as the result, on every device.
void require_memory_for(const nn::ModelSpec& spec, const nn::ModelData& data, DType dtype,
                        std::size_t num_devices) {
  const double num_bytes = 4 * nn::count_parameters(spec, data) *
                           static_cast<double>(size_of(dtype)) * static_cast<double>(num_devices);
  require_memory("--model", num_bytes);
}

void require_fitting_bitwise(const TrainingFlags& flags, const nn::ModelSpec& model,
                             std::size_t num_devices) {
  refuse(model.has_batch_norm(), "--bitwise",
         "cuts a batch into eight micro-shards, and each device would keep running statistics of "
         "only its own; use a model without batch norm");
  require(num_devices == 1 || num_devices == 2 || num_devices == 4 || num_devices == 8,
          ErrorCode::Usage, "--bitwise", "works with 1, 2, 4 or 8 devices, found {}", num_devices);
  refuse(flags.plan != "auto", "--bitwise",
         "fixes the order of additions itself; leave out --plan");
  refuse(flags.comm != "own", "--bitwise",
         "fixes the order of additions, and another library has its own; use --comm own");
  refuse(flags.sampler != "exact", "--bitwise", "needs --sampler exact");
  refuse(flags.threads_per_device.value_or(1) != 1, "--bitwise",
         "needs one thread per device; leave out --threads-per-device");
}

// A graph repeats what it captured, without the host.
void require_fitting_graph(const TrainingFlags& flags) {
  refuse(resolve_device_type(flags) != DeviceType::cuda, "--graph",
         "captures a step on CUDA devices; leave it out on the CPU");
  refuse(flags.bitwise, "--graph",
         "cannot capture --bitwise, where the host waits for sums within a step; leave one out");
  refuse(flags.ranks == "processes", "--graph",
         "captures the steps of all ranks from one thread; leave it out with --ranks processes");
  refuse(flags.sync_batch_norm, "--sync-batch-norm",
         "lets devices wait for each other within a step, which --graph captures from one thread; "
         "leave one out");
  refuse(!flags.shard.empty(), "--shard",
         "lets ranks wait for each other within a step, which --graph captures from one thread; "
         "leave one out");
}

void take_accumulation(TrainingTask& task, const TrainingFlags& flags) {
  task.accumulate = require_positive("--accumulate", flags.accumulate);
  if (task.accumulate == 1) return;
  refuse(flags.bitwise, "--accumulate",
         "does what --bitwise does anyway: it adds up the gradients of eight micro-shards; leave "
         "one out");
  refuse(flags.graph, "--accumulate",
         "takes several backward passes, and --graph captures one; leave one out");
  refuse(nn::parse_model(task.model).has_batch_norm(), "--accumulate",
         "would let batch norm take the statistics of a micro-batch, so the whole batch would not "
         "be computed; use a model without batch norm");
  require(task.batch % task.accumulate == 0, ErrorCode::Usage, "--accumulate",
          "{} micro-batches of one size cannot be cut from a batch of {} rows; use a number that "
          "divides {}",
          task.accumulate, task.batch, task.batch);
}

}  // namespace

nn::ModelData TrainingTask::model_data() const {
  const data::LabelledRows& rows = data->train;
  return data_for(nn::parse_model(model), rows.image_shape(), rows.num_features,
                  std::max(rows.num_classes, table_rows), row_values(rows.is_text()));
}

Shape TrainingTask::batch_shape(std::size_t num_rows) const {
  return tools::batch_shape(model_data(), num_rows);
}

Shape batch_shape(const nn::ModelData& data, std::size_t num_rows) {
  const Shape& row = data.row;
  return row.num_dims() == 3 ? Shape{num_rows, row[0], row[1], row[2]} : Shape{num_rows, row[0]};
}

DType TrainingTask::batch_dtype() const {
  return is_text() ? DType::int64 : dtype;
}

Shape TrainingTask::label_shape(std::size_t num_rows) const {
  return is_text() ? Shape{num_rows, data->train.labels_per_row()} : Shape{num_rows};
}

nn::ModelData rows_for(const std::string& model, const std::string& dataset) {
  const nn::ModelSpec spec = nn::parse_model(model);
  require(!spec.takes_text(), ErrorCode::Usage, "--model",
          "'{}' takes tokens of a text, which this command does not have; use train or compare",
          model);
  const bool is_own = dataset.empty() && !spec.takes_images();
  const datasets::RowSize row =
      is_own
          ? datasets::RowSize{spec.mlp.sizes.front(), spec.mlp.sizes.back(), {}}
          : datasets::usual_row_size(datasets::parse_dataset(dataset.empty() ? "digits" : dataset));
  const nn::ModelData data =
      data_for(spec, row.image, row.num_features, row.num_classes, nn::ModelData::Values::numbers);
  nn::require_model_fits(model, data, dataset.empty() ? "digits" : dataset);
  require_memory_for(spec, data, DType::float32, 1);
  return data;
}

std::size_t TrainingTask::steps_per_epoch() const {
  return (data->train.num_rows() + batch - 1) / batch;
}

std::size_t TrainingTask::num_epochs() const {
  return (num_steps + steps_per_epoch() - 1) / steps_per_epoch();
}

std::size_t TrainingTask::rows_of_full_batch() const {
  return std::min(batch, data->train.num_rows());
}

void require_writable_outputs(const TrainingFlags& flags) {
  std::vector<OutputPath> outputs = {
      {"--save", flags.save_path}, {"--log", flags.log_path}, {"--json", flags.json_path}};
  outputs.push_back({"--trace", flags.trace_path});
  require_writable(outputs);
  for (std::size_t i = 1; i < outputs.size() && !flags.init_path.empty(); ++i) {
    const auto& [flag, path] = outputs[i];
    require(path.empty() || path == "-" || !is_same_file(path, flags.init_path), ErrorCode::Usage,
            flag, "'{}' is the file of --init, which it would replace; name another", path);
  }
}

std::string default_model(const TrainingFlags& flags, std::size_t num_parts) {
  const datasets::DatasetSpec dataset = datasets::parse_dataset(flags.dataset);
  if (dataset.is_text()) return "gpt:4-4-128-64";
  const datasets::RowSize row = datasets::usual_row_size(dataset);
  std::string hidden = "-256";
  for (std::size_t i = 2; i < num_parts; ++i) hidden += "-256";
  return fmt::format("mlp:{}{}-{}", row.num_features, hidden, row.num_classes);
}

TrainingTask read_task(const TrainingFlags& flags, std::size_t num_devices) {
  TrainingTask task;
  const datasets::DatasetSpec dataset = datasets::parse_dataset(flags.dataset);
  datasets::RowSize row = datasets::usual_row_size(dataset);
  if (!flags.vocab_dir.empty()) row.num_classes = datasets::kGpt2Vocabulary;
  task.model = flags.model.empty() ? default_model(flags) : flags.model;
  task.dtype = parse_dtype(flags.dtype);
  const nn::ModelSpec spec = nn::parse_model(task.model);
  const nn::ModelData data =
      data_for(spec, row.image, row.num_features, row.num_classes, row_values(dataset.is_text()));
  // The windows of a cnn are checked against the images later, when these are known.
  if (spec.kind != nn::ModelSpec::Kind::cnn) {
    require_memory_for(spec, data, task.dtype, num_devices);
  }
  task.batch = batch_of(flags, num_devices);
  require_positive("--epochs", flags.epochs.value_or(1));
  if (flags.steps) task.num_steps = require_positive("--steps", *flags.steps);
  task.seed = flags.seed;
  task.shuffle = flags.no_shuffle ? data::Shuffle::off : data::Shuffle::on;
  task.augmentation = augmentation_of(flags, task);
  task.sampler = flags.sampler == "exact" ? Sampler::exact : Sampler::torch;
  if (flags.bitwise) {
    require_fitting_bitwise(flags, spec, num_devices);
    task.summation = Summation::bitwise;
  }
  if (flags.sync_batch_norm) {
    refuse(!spec.has_batch_norm(), "--sync-batch-norm",
           "is for models with batch norm, such as resnet18; leave it out");
    task.batch_norm = parallel::BatchNormRows::all;
  }
  task.optimizer = make_optimizer_settings(flags);
  if (spec.takes_text() && task.optimizer.kind == OptimizerKind::adamw) {
    task.optimizer.decays = OptimizerSettings::Decays::matrices;
  }
  if (flags.graph) {
    require_fitting_graph(flags);
    task.launching = TrainingTask::Launching::graph;
  }
  if (!flags.shard.empty()) {
    refuse(flags.bitwise, "--shard",
           "reduces gradients layer by layer, and --bitwise adds them up in an order of its own; "
           "leave one out");
    task.shard = shard_depth(mode_of_ranks(flags.shard));
  }
  task.cuts_tensors = flags.parallel == "tensor";
  if (task.cuts_tensors) require_fitting_tensor(flags, task, num_devices);
  if (flags.parallel == "pipeline") task.pipeline = read_pipeline(flags, task.model, num_devices);
  take_accumulation(task, flags);
  task.all_reduce_plan = plan::parse_all_reduce_plan(flags.plan);
  task.link = modelled_link(flags);
  task.slow_motion = read_slow_motion(flags);
  task.comm_timeout_seconds = require_positive("--comm-timeout", flags.comm_timeout);
  task.bucket_byte_limits = {mib_to_bytes("--first-bucket-mib", flags.first_bucket_mib),
                             mib_to_bytes("--bucket-mib", flags.bucket_mib)};
  return task;
}

bool TrainingTask::has_own_statistics() const {
  return !model.empty() && batch_norm == parallel::BatchNormRows::own &&
         nn::parse_model(model).has_batch_norm();
}

void load_task(TrainingTask& task, const TrainingFlags& flags) {
  const datasets::DatasetSpec dataset = datasets::parse_dataset(flags.dataset);
  const nn::ModelSpec model = nn::parse_model(task.model);
  task.data = std::make_shared<datasets::Dataset>(datasets::load_dataset(
      dataset, flags.data_dir, flags.seed, {model.gpt.context, flags.vocab_dir}));
  nn::require_model_fits(task.model, task.model_data(), task.data->train.name);
  if (!flags.init_path.empty()) take_weights(task, flags);
  task = with_batch(std::move(task), flags, task.batch);
  take_checkpoints(task, flags);
}

TrainingTask with_batch(TrainingTask task, const TrainingFlags& flags, std::size_t batch) {
  task.batch = batch;
  take_accumulation(task, flags);
  const std::size_t epochs = require_positive("--epochs", flags.epochs.value_or(1));
  if (!flags.steps) task.num_steps = epochs * task.steps_per_epoch();
  task.optimizer.schedule = optim::parse_schedule(flags.schedule, task.num_steps,
                                                  static_cast<std::size_t>(flags.warmup_steps));
  return task;
}

TrainingTask make_task(const TrainingFlags& flags, std::size_t num_devices) {
  TrainingTask task = read_task(flags, num_devices);
  require_writable_outputs(flags);
  load_task(task, flags);
  return task;
}

std::string torch_sampler_note(const TrainingTask& task) {
  if (task.sampler != Sampler::torch) return {};
  return fmt::format(
      "--sampler torch pads the rows and averages the ranks' means, so the result of ddp is not "
      "one device's{}",
      task.shuffle == data::Shuffle::off
          ? ""
          : "; only with --no-shuffle are the rows PyTorch's, whose permutation comes from its own "
            "generator");
}

namespace {

// `format` has a place for the batch that the user asked for.
std::string asked_text(const TrainingTask& task, fmt::format_string<const std::size_t&> format) {
  return task.rows_of_full_batch() < task.batch ? fmt::format(format, task.batch) : "";
}

}  // namespace

std::string steps_text(const TrainingTask& task) {
  return fmt::format(
      "{} of {}{}{}", count_text(task.num_steps, "step"),
      count_text(task.rows_of_full_batch(), "row"), asked_text(task, " (batch {} asked)"),
      task.accumulate == 1 ? "" : fmt::format(" in {} micro-batches", task.accumulate));
}

std::string batch_text(const TrainingTask& task) {
  return fmt::format("batch {}{}", task.rows_of_full_batch(), asked_text(task, " ({} asked)"));
}

}  // namespace lockstep::tools
