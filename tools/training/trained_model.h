// The model that a run trains: how it is made, and what is found out about it at the end.
#pragma once

#include <memory>

#include "tools/training/rank_loop.h"

namespace lockstep::tools {

// With the task's weights, on the device.
std::shared_ptr<nn::Module> make_model(const TrainingTask& task, Device device);

// Takes over the report, and adds a copy of the weights and the accuracy on the test rows.
void take_results(const TrainingTask& task, const RankModel& model, RankReport report,
                  TrainingResult& result);

}  // namespace lockstep::tools
