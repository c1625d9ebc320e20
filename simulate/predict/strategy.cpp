#include "simulate/predict/strategy.h"

#include <array>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/text.h"

namespace lockstep::predict {
namespace {

constexpr std::array<std::pair<std::string_view, Strategy>, 11> kNames = {
    {{"single", Strategy::single},
     {"dp", Strategy::data_parallel},
     {"cpu_reduce", Strategy::cpu_reduce},
     {"cpu_parameter_server", Strategy::cpu_parameter_server},
     {"device_allreduce", Strategy::device_all_reduce},
     {"nccl_replicated", Strategy::nccl_replicated},
     {"ddp", Strategy::ddp},
     {"hierarchical", Strategy::hierarchical},
     {"zero1", Strategy::zero1},
     {"zero3", Strategy::zero3},
     {"pipeline", Strategy::pipeline}}};

}  // namespace

std::string_view to_string(Strategy strategy) {
  for (const auto& [name, value] : kNames) {
    if (value == strategy) return name;
  }
  return "?";
}

bool is_of_one_process(Strategy strategy) {
  return strategy == Strategy::data_parallel || strategy == Strategy::device_all_reduce;
}

bool is_data_parallel(Strategy strategy) {
  return strategy != Strategy::pipeline;
}

Strategy parse_strategy(std::string_view name) {
  for (const auto& [known, value] : kNames) {
    if (known == name) return value;
  }
  if (name == "data_parallel") return Strategy::data_parallel;
  if (name == "device_all_reduce") return Strategy::device_all_reduce;
  std::string names;
  for (const auto& [known, value] : kNames) names.append(names.empty() ? "" : ", ").append(known);
  fail(ErrorCode::Usage, "strategy", "'{}' is not one of {}", shown(name), names);
}

}  // namespace lockstep::predict
