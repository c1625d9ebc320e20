#include "engine/parallel/ddp/logging_data.h"

#include <nlohmann/json.hpp>

namespace lockstep::parallel {

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
