#include "tools/report/flags_json.h"

namespace lockstep::tools {
namespace {

template <typename T>
nlohmann::json or_null(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

nlohmann::json or_null(const std::string& text) {
  return text.empty() ? nlohmann::json() : nlohmann::json(text);
}

}  // namespace

nlohmann::ordered_json flags_json(const TrainingFlags& flags, const TrainingTask& task) {
  const OptimizerSettings& optimizer = task.optimizer;
  const bool is_sgd = optimizer.kind == OptimizerKind::sgd;
  nlohmann::ordered_json json{
      {"device", lockstep::to_string(resolve_device_type(flags))},
      {"parallel", flags.parallel},
      {"devices", or_null(flags.devices)},
      {"device_ids", or_null(flags.device_ids)},
      {"virtual_devices", or_null(flags.virtual_devices)},
      {"threads_per_device", or_null(flags.threads_per_device)},
      {"ranks", flags.ranks},
      {"comm", flags.comm},
      {"plan", flags.plan},
      {"transport", flags.transport == "auto" ? "thread" : flags.transport},
      {"comm_timeout", flags.comm_timeout},
      {"batch", task.batch},
      {"per_device_batch", or_null(flags.per_device_batch)},
      {"epochs", task.num_epochs()},
      {"steps", task.num_steps},
      {"dataset", flags.dataset},
      {"data_dir", flags.data_dir},
      {"model", flags.model},
      {"dtype", flags.dtype},
      {"optimizer", flags.optimizer},
      {"lr", optimizer.learning_rate},
      {"momentum", is_sgd ? nlohmann::json(optimizer.momentum) : nlohmann::json()},
      {"nesterov", flags.nesterov},
      {"weight_decay", optimizer.weight_decay},
      {"schedule", flags.schedule},
      {"warmup", flags.warmup_steps},
      {"clip_norm", or_null(optimizer.clip_norm)},
      {"seed", flags.seed},
      {"shuffle", !flags.no_shuffle},
      {"bitwise", flags.bitwise},
      {"sampler", flags.sampler},
      {"bucket_mib", flags.bucket_mib},
      {"first_bucket_mib", flags.first_bucket_mib},
      {"init", or_null(flags.init_path)},
      {"save", or_null(flags.save_path)},
      {"log", or_null(flags.log_path)},
      {"json", or_null(flags.json_path)},
      {"trace", or_null(flags.trace_path)},
      {"trace_format", flags.trace_format}};
  return json;
}

}  // namespace lockstep::tools
