#include "tools/report/step_log.h"

#include <nlohmann/json.hpp>

namespace lockstep::tools {

void StepLog::write(const StepRecord& record) {
  const nlohmann::ordered_json line{{"step", record.step},
                                    {"epoch", record.epoch},
                                    {"loss", record.loss},
                                    {"lr", record.learning_rate},
                                    {"grad_norm", record.grad_norm},
                                    {"step_seconds", record.step_seconds},
                                    {"samples_per_second", record.samples_per_second}};
  file_.write(line.dump() + '\n');
}

}  // namespace lockstep::tools
