#include "tools/training/step_log.h"

#include <nlohmann/json.hpp>

#include "engine/core/error.h"

namespace lockstep::tools {

StepLog::StepLog(const std::string& path) : path_(path), file_(path) {
  require(file_.good(), ErrorCode::Io, "--log", "cannot write {}", path);
}

void StepLog::write(const StepRecord& record) {
  const nlohmann::ordered_json line{{"step", record.step},
                                    {"epoch", record.epoch},
                                    {"loss", record.loss},
                                    {"lr", record.learning_rate},
                                    {"grad_norm", record.grad_norm},
                                    {"step_seconds", record.step_seconds},
                                    {"samples_per_second", record.samples_per_second}};
  file_ << line.dump() << '\n';
  require(file_.good(), ErrorCode::Io, "--log", "cannot write {}: is the disk full?", path_);
}

}  // namespace lockstep::tools
