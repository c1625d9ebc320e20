#include "tools/report/flags_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "tools/cli/numbers.h"
#include "tools/training/placement.h"

namespace lockstep::tools {
namespace {

// Where ranks may differ.
constexpr std::array<std::string_view, 15> kOfOneRank = {"devices",
                                                         "device_ids",
                                                         "virtual_devices",
                                                         "threads_per_device",
                                                         "ranks",
                                                         "nccl_share_gpu",
                                                         "comm_timeout",
                                                         "data_dir",
                                                         "per_device_batch",
                                                         "init",
                                                         "save",
                                                         "log",
                                                         "json",
                                                         "trace",
                                                         "trace_format"};

template <typename T>
nlohmann::json or_null(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

nlohmann::json or_null(const std::string& text) {
  return text.empty() ? nlohmann::json() : nlohmann::json(text);
}

// The first of them: `train` takes but one.
nlohmann::json per_device_batch_json(const std::string& text) {
  if (text.empty()) return {};
  return parse_list("--per-device-batch", text).front();
}

}  // namespace

nlohmann::ordered_json flags_json(const TrainingFlags& flags, const TrainingTask& task) {
  const OptimizerSettings& optimizer = task.optimizer;
  const bool is_sgd = optimizer.kind == OptimizerKind::sgd;
  nlohmann::ordered_json json;
  json["device"] = lockstep::to_string(resolve_device_type(flags));
  json["parallel"] = flags.parallel;
  json["devices"] = or_null(flags.devices);
  json["device_ids"] = or_null(flags.device_ids);
  json["virtual_devices"] = or_null(flags.virtual_devices);
  json["threads_per_device"] = or_null(flags.threads_per_device);
  json["graph"] = flags.graph;
  json["matmul_precision"] = flags.matmul_precision;
  json["bitwise"] = flags.bitwise;  // before comm, which it may choose
  json["ranks"] = flags.ranks;
  json["comm"] = or_null(flags.comm);
  json["nccl_share_gpu"] = flags.nccl_share_gpu;
  json["plan"] = flags.plan;
  json["transport"] =
      flags.transport == "auto" && flags.ranks == "threads" ? "thread" : flags.transport;
  json["link"] = or_null(flags.link);
  json["comm_timeout"] = flags.comm_timeout;
  json["batch"] = task.batch;
  json["per_device_batch"] = per_device_batch_json(flags.per_device_batch);
  json["epochs"] = task.num_epochs();
  json["steps"] = task.num_steps;
  json["dataset"] = flags.dataset;
  json["data_dir"] = flags.data_dir;
  json["model"] = flags.model;
  json["dtype"] = flags.dtype;
  json["optimizer"] = flags.optimizer;
  json["lr"] = optimizer.learning_rate;
  json["momentum"] = is_sgd ? nlohmann::json(optimizer.momentum) : nlohmann::json();
  json["nesterov"] = flags.nesterov;
  json["weight_decay"] = optimizer.weight_decay;
  json["schedule"] = flags.schedule;
  json["warmup"] = flags.warmup_steps;
  json["clip_norm"] = or_null(optimizer.clip_norm);
  json["seed"] = flags.seed;
  json["shuffle"] = !flags.no_shuffle;
  json["sampler"] = flags.sampler;
  json["bucket_mib"] = flags.bucket_mib;
  json["first_bucket_mib"] = flags.first_bucket_mib;
  json["init"] = or_null(flags.init_path);
  json["save"] = or_null(flags.save_path);
  json["log"] = or_null(flags.log_path);
  json["json"] = or_null(flags.json_path);
  json["trace"] = or_null(flags.trace_path);
  json["trace_format"] = flags.trace_format;
  return json;
}

std::vector<launch::Setting> common_settings(const TrainingFlags& flags, const TrainingTask& task) {
  std::vector<launch::Setting> settings{{"command", "train"}};
  const nlohmann::ordered_json json = flags_json(flags, task);
  for (const auto& [name, value] : json.items()) {
    if (std::ranges::count(kOfOneRank, name) > 0) continue;
    settings.push_back({name, value.is_string() ? value.get<std::string>() : value.dump()});
  }
  const data::LabelledRows& train = task.data->train;
  settings.push_back({"rows of the dataset",
                      fmt::format("{} to train and {} to test, of {} values", train.num_rows(),
                                  task.data->test.num_rows(), train.num_features)});
  return settings;
}

}  // namespace lockstep::tools
