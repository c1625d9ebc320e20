#include "engine/parallel/ddp/logging_data.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace lockstep::parallel {

void DdpStopwatch::end_step() {
  const auto seconds = [](Clock::time_point from, Clock::time_point to) {
    return std::max(0.0, std::chrono::duration<double>(to - from).count());
  };
  last_step_ = {.forward_seconds = seconds(forward_, forward_end_),
                .backward_seconds = seconds(backward_, backward_end_),
                .communication_seconds = seconds(first_bucket_, Clock::now()),
                .overlap_seconds = seconds(first_bucket_, backward_end_)};
}

nlohmann::ordered_json to_json(const DdpLoggingData& data) {
  nlohmann::ordered_json json{{"rank", data.rank},
                              {"world_size", data.world_size},
                              {"num_steps", data.num_steps},
                              {"bucket_bytes", data.bucket_bytes},
                              {"was_rebuilt", data.was_rebuilt},
                              {"ready_order", data.ready_order},
                              {"last_step", nullptr}};
  if (const std::optional<DdpTimes>& times = data.last_step) {
    json["last_step"] = {{"forward_seconds", times->forward_seconds},
                         {"backward_seconds", times->backward_seconds},
                         {"communication_seconds", times->communication_seconds},
                         {"overlap_seconds", times->overlap_seconds}};
  }
  return json;
}

}  // namespace lockstep::parallel
