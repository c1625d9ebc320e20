#include "tools/report/flags_json.h"

namespace lockstep::tools {

nlohmann::ordered_json flags_json(const TrainingFlags& flags, const TrainingTask& task) {
  const OptimizerSettings& optimizer = task.optimizer;
  const bool is_sgd = optimizer.kind == OptimizerKind::sgd;
  nlohmann::ordered_json json{
      {"device", flags.device},
      {"ranks", flags.ranks},
      {"comm", flags.comm},
      {"plan", flags.plan},
      {"transport", flags.transport},
      {"comm_timeout", flags.comm_timeout},
      {"batch", task.batch},
      {"epochs", task.num_epochs()},
      {"steps", task.num_steps},
      {"dataset", flags.dataset},
      {"model", flags.model},
      {"dtype", flags.dtype},
      {"optimizer", flags.optimizer},
      {"lr", optimizer.learning_rate},
      {"momentum", is_sgd ? nlohmann::json(optimizer.momentum) : nlohmann::json()},
      {"nesterov", flags.nesterov},
      {"weight_decay", optimizer.weight_decay},
      {"schedule", flags.schedule},
      {"warmup", flags.warmup_steps},
      {"clip_norm", optimizer.clip_norm ? nlohmann::json(*optimizer.clip_norm) : nlohmann::json()},
      {"seed", flags.seed},
      {"shuffle", !flags.no_shuffle},
      {"bitwise", flags.bitwise},
      {"sampler", flags.sampler},
      {"bucket_mib", flags.bucket_mib},
      {"first_bucket_mib", flags.first_bucket_mib}};
  return json;
}

}  // namespace lockstep::tools
