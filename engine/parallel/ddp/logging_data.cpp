#include "engine/parallel/ddp/logging_data.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/parallel/ddp/grad_reducer.h"

namespace lockstep::parallel {

DdpLoggingData GradReducer::logging_data() const {
  DdpLoggingData data{.rank = communicator_.rank(),
                      .world_size = communicator_.world_size(),
                      .num_steps = num_backward_passes_,
                      .was_rebuilt = was_rebuilt_,
                      .ready_order = buckets_.ready_order()};
  for (std::size_t i = 0; i < buckets_.num_buckets(); ++i) {
    data.bucket_bytes.push_back(buckets_.memory(i).num_bytes());
  }
  const bool is_on_cpu = buckets_.memory(0).device().type == DeviceType::cpu;
  if (!is_on_cpu || num_backward_passes_ == 0) return data;
  const auto seconds = [](Clock::time_point from, Clock::time_point to) {
    return std::max(0.0, std::chrono::duration<double>(to - from).count());
  };
  data.last_step = {.forward_seconds = seconds(moments_.forward, moments_.forward_end),
                    .backward_seconds = seconds(moments_.backward, moments_.backward_end),
                    .communication_seconds = seconds(moments_.first_bucket, moments_.end),
                    .overlap_seconds = seconds(moments_.first_bucket, moments_.backward_end)};
  return data;
}

std::string to_json(const DdpLoggingData& data) {
  nlohmann::ordered_json json{{"rank", data.rank},
                              {"world_size", data.world_size},
                              {"num_steps", data.num_steps},
                              {"bucket_bytes", data.bucket_bytes},
                              {"was_rebuilt", data.was_rebuilt},
                              {"ready_order", data.ready_order},
                              {"last_step", nullptr}};
  if (const auto& times = data.last_step) {
    json["last_step"] = {{"forward_seconds", times->forward_seconds},
                         {"backward_seconds", times->backward_seconds},
                         {"communication_seconds", times->communication_seconds},
                         {"overlap_seconds", times->overlap_seconds}};
  }
  return json.dump();
}

}  // namespace lockstep::parallel
