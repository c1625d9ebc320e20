#include "tools/record/row_file.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "engine/nn/state_dict.h"
#include "tools/run/placement.h"

// JSON's null stands for an absent value.
template <typename T>
struct nlohmann::adl_serializer<std::optional<T>> {
  static void to_json(json& json, const std::optional<T>& value) {
    json = value ? nlohmann::json(*value) : nlohmann::json();
  }
  static void from_json(const json& json, std::optional<T>& value) {
    value.reset();
    if (!json.is_null()) value = json.get<T>();
  }
};

namespace lockstep::trace {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StepBreakdown, data, copy, forward, backward, exposed_comm,
                                   optimizer, wait, host, unattributed, step, comm, overlapped_comm,
                                   sequence, rank)
}

namespace lockstep::tools {
namespace {

constexpr std::string_view kFirstWeights = ".first_weights.safetensors";

}  // namespace

// A row of processes is never simulated, so that member is left out; weights have files of their
// own.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StepStatistics, num_steps, median, p90)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ThinnedLosses, steps_per_point, mean)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RunFindings, num_first_steps, first_movement, movement,
                                   last_state, losses, test_result, gradient_checks, gradient_limit,
                                   failure, exploded)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TrainingResult, num_steps, epoch_seconds, final_loss, losses,
                                   epoch_accuracy, epoch_validation_loss, breakdown,
                                   step_statistics, comm_overlap, bubble, busy_fraction, peak_bytes,
                                   comm_bytes_per_step, findings)

void write_row(const std::string& path, const RunRow& row) {
  nlohmann::json json{{"mode", to_string(row.placement.mode)},
                      {"is_cuda", row.placement.devices[0].type == DeviceType::cuda},
                      {"devices", nlohmann::json::array()},
                      {"physical_devices", num_physical_devices(row.placement)},
                      {"threads", row.threads_per_device},
                      {"contended", row.contended},
                      {"result", row.result}};
  for (const Device device : row.placement.devices) json["devices"].push_back(device.index);
  if (row.result.findings) {
    nn::save_weights(path + std::string(kFirstWeights),
                     to_state_dict(row.result.findings->first_weights));
  }
  std::string bytes;
  nlohmann::json::to_cbor(json, bytes);  // which has NaN, unlike JSON
  write_file_atomically(path, bytes);
}

RunRow read_row(const std::string& path) {
  const nlohmann::json json = nlohmann::json::from_cbor(read_text_file(path, "compare"));
  RunRow row;
  row.placement = {parse_mode(json.at("mode").get<std::string>()),
                   devices_of(json.at("is_cuda") ? DeviceType::cuda : DeviceType::cpu,
                              json.at("devices").get<std::vector<int>>()),
                   json.at("physical_devices").get<std::size_t>()};
  row.threads_per_device = json.at("threads");
  row.contended = json.at("contended").get<std::optional<bool>>();
  row.result = json.at("result").get<TrainingResult>();
  if (row.result.findings) {
    row.result.findings->first_weights = keep(nn::load_weights(path + std::string(kFirstWeights)));
  }
  return row;
}

}  // namespace lockstep::tools
