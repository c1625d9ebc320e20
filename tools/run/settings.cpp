#include "tools/run/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <variant>

#include "datasets/dataset.h"
#include "engine/core/error.h"
#include "tools/flags/numbers.h"

namespace lockstep::tools {
namespace {

using F = TrainingFlags;
using Value = nlohmann::json;

// `train` takes only one, so the first is the one.
Value per_device_batch(const F& flags, const TrainingTask&) {
  if (flags.per_device_batch.empty()) return {};
  return parse_list("--per-device-batch", flags.per_device_batch).front();
}

Value transport(const F& flags, const TrainingTask&) {
  return flags.transport == "auto" && flags.ranks == "threads" ? "thread" : flags.transport;
}

Value momentum(const F&, const TrainingTask& task) {
  const bool is_sgd = task.optimizer.kind == OptimizerKind::sgd;
  return is_sgd ? Value(task.optimizer.momentum) : Value();
}

// The flags whose value in force is not the one that stands on the command line.
const std::map<std::string_view, Value (*)(const F& flags, const TrainingTask& task)> kResolved = {
    {"--device", [](auto& f, auto&) { return Value(lockstep::to_string(resolve_device_type(f))); }},
    {"--transport", transport},
    {"--batch", [](auto&, auto& task) { return Value(task.batch); }},
    {"--per-device-batch", per_device_batch},
    {"--epochs", [](auto&, auto& task) { return Value(task.num_epochs()); }},
    {"--steps", [](auto&, auto& task) { return Value(task.num_steps); }},
    {"--model", [](auto&, auto& task) { return Value(task.model); }},
    {"--lr", [](auto&, auto& task) { return Value(task.optimizer.learning_rate); }},
    {"--momentum", momentum},
    {"--weight-decay", [](auto&, auto& task) { return Value(task.optimizer.weight_decay); }},
    {"--no-shuffle", [](auto& f, auto&) { return Value(!f.no_shuffle); }},
};

template <typename T>
Value value_json(const T& value) {
  return value;
}

template <typename T>
Value value_json(const std::optional<T>& value) {
  return value ? Value(*value) : Value();
}

Value value_json(const std::string& text) {
  return text.empty() ? Value() : Value(text);
}

Value resolved_json(const TrainingFlag& flag, const TrainingFlags& flags,
                    const TrainingTask& task) {
  const auto found = kResolved.find(flag.name);
  if (found != kResolved.end()) return found->second(flags, task);
  return std::visit([&](auto member) { return value_json(flags.*member); }, flag.member);
}

}  // namespace

nlohmann::ordered_json flags_json(const TrainingFlags& flags, const TrainingTask& task) {
  nlohmann::ordered_json all;
  for (const TrainingFlag& flag : training_flags()) {
    const std::string name = flag.rules.recorded_as.value_or(flag.key());
    if (!name.empty()) all[name] = resolved_json(flag, flags, task);
  }
  return all;
}

std::vector<launch::Setting> common_settings(const TrainingFlags& flags, const TrainingTask& task) {
  std::vector<launch::Setting> settings{{"command", "train"}};
  for (const TrainingFlag& flag : training_flags()) {
    if (flag.rules.ranks == FlagRules::Ranks::each_its_own) continue;
    const Value value = resolved_json(flag, flags, task);
    settings.push_back({flag.rules.recorded_as.value_or(flag.key()),
                        value.is_string() ? value.get<std::string>() : value.dump()});
  }
  const data::LabelledRows& train = task.data->train;
  settings.push_back({"rows of the dataset",
                      fmt::format("{} to train and {} to test, of {} values", train.num_rows(),
                                  task.data->test.num_rows(), train.num_features)});
  return settings;
}

void reject_idle_flags(const TrainingFlags& flags, const std::vector<Mode>& modes,
                       DeviceType device) {
  const auto refuse = [&](bool is_idle, std::initializer_list<std::string_view> names,
                          std::string_view reason) {
    for (const std::string_view name : names) {
      require(!is_idle || std::ranges::count(flags.given, name) == 0, ErrorCode::Usage, name,
              "has no effect here: it {}", reason);
    }
  };
  const bool has_ddp = std::ranges::count(modes, Mode::ddp) > 0;
  const bool has_shards =
      std::ranges::any_of(modes, [](Mode mode) { return shard_depth(mode).has_value(); });
  refuse(std::ranges::count(modes, Mode::pipeline) == 0,
         {"--stages", "--micro-batches", "--pipeline-schedule", "--chunks"},
         "is for a pipeline, and there is none here; leave it out, or use one (train: --parallel "
         "pipeline, compare: --modes pipeline)");
  refuse(flags.pipeline_schedule != "interleaved", {"--chunks"},
         "is for --pipeline-schedule interleaved; leave it out");
  refuse(!has_ddp && !has_shards, {"--shard"},
         "is for the ranks of ddp, and there are none here; leave it out, or use --parallel ddp");
  refuse(std::ranges::none_of(modes, has_ranks),
         {"--ranks", "--comm", "--nccl-share-gpu", "--transport", "--link", "--comm-timeout"},
         "is for the ranks of ddp, and there are none here; leave it out, or use ddp (train: "
         "--parallel ddp, compare: --modes ddp)");
  refuse(!has_ddp, {"--plan", "--bucket-mib", "--first-bucket-mib"},
         "is for gradients that ranks of ddp sum in buckets, and there are none here (shards are "
         "reduced layer by layer); leave it out, or use ddp (train: --parallel ddp, compare: "
         "--modes ddp)");
  refuse(flags.bitwise, {"--bucket-mib", "--first-bucket-mib"},
         "is about gradient buckets, and --bitwise sums each gradient by itself; leave one out");
  refuse(device == DeviceType::cuda, {"--threads-per-device"},
         "is for CPU devices, and these are GPUs; leave it out, or use --device cpu");
  refuse(flags.precision == "tf32" && device == DeviceType::cpu, {"--precision"},
         "asks for tf32, which only GPUs have, and the device is the CPU; leave it out, or use "
         "--device cuda");
  refuse(flags.dtype == "float64", {"--precision"},
         "is for products of float32, and --dtype is float64; leave one out");
  refuse(flags.optimizer == "adamw", {"--momentum", "--nesterov"},
         "is for sgd, and adamw has no momentum; leave it out, or use --optimizer sgd");
  using enum datasets::DatasetKind;
  const datasets::DatasetSpec dataset = datasets::parse_dataset(flags.dataset);
  const bool is_fetched = dataset.kind == mnist || dataset.kind == fashion_mnist ||
                          dataset.kind == cifar10 || dataset.kind == tiny_shakespeare;
  refuse(!is_fetched, {"--data-dir"},
         "is for mnist, fashion-mnist, cifar10 and tinyshakespeare, and this --dataset needs no "
         "files from there; leave it out");
  refuse(!dataset.is_text() || dataset.kind == tokens, {"--vocab"},
         "turns text into tokens, and this --dataset is not text; leave it out, or use text:FILE, "
         "tinyshakespeare or embedded-text");
}

}  // namespace lockstep::tools
