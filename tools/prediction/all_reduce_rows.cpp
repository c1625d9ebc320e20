#include "tools/prediction/all_reduce_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/trace/breakdown.h"
#include "simulate/predict/all_reduce_cost.h"
#include "simulate/predict/step_work.h"

namespace lockstep::tools {
namespace {

constexpr std::size_t kArraysPerDevice = 32;

nlohmann::ordered_json predict_row(predict::Network& network, std::size_t bytes,
                                   std::size_t devices) {
  const auto size = static_cast<double>(bytes);
  nlohmann::ordered_json row{{"devices", devices}, {"bytes", bytes}};
  predict::NcclGroup group = predict::nccl_group(network, devices);
  row["nvls_seconds"] = nullptr;
  if (group.nvls_bytes_per_second > 0) {
    row["nvls_seconds"] =
        predict::nccl_all_reduce_seconds(group, size, predict::NcclAlgorithm::nvls);
  }
  group.nvls_bytes_per_second = 0;
  row["ring_seconds"] = predict::nccl_all_reduce_seconds(group, size);
  const std::vector<std::size_t> arrays(kArraysPerDevice * devices,
                                        bytes / (kArraysPerDevice * devices));
  const predict::Exchange exchange = predict::reduce_on_devices(network, devices, arrays);
  row["on_devices_seconds"] = exchange.reduce_seconds + exchange.broadcast_seconds;
  // Some arrays are copied while others are summed.
  row["through_cpu_seconds"] = std::max(
      predict::to_host_seconds(network, devices, size),
      predict::host_sum_seconds(network.topology().host_thread_bytes_per_second, devices, size));
  predict::Traffic copy(network);
  copy.add(network.gpu(0), devices > 1 ? network.gpu(1) : network.cpu_of(0), 1);
  row["copy_gb_per_s"] = 1e-9 / copy.wire_seconds();
  return row;
}

}  // namespace

nlohmann::ordered_json predict_all_reduces(const predict::Topology& topology, std::size_t bytes,
                                           const std::vector<std::size_t>& devices) {
  predict::Network network(topology);
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const std::size_t count : devices) rows.push_back(predict_row(network, bytes, count));
  return rows;
}

std::string all_reduce_table(const nlohmann::ordered_json& rows) {
  std::string text = fmt::format("{:>7}{:>12}{:>12}{:>12}{:>13}{:>15}\n", "devices", "NCCL ring",
                                 "NCCL NVLS", "on devices", "through CPU", "copy");
  const auto seconds = [](const nlohmann::ordered_json& value) {
    return value.is_null() ? "-" : trace::format_seconds(value);
  };
  for (const nlohmann::ordered_json& row : rows) {
    text += fmt::format("{:>7}{:>12}{:>12}{:>12}{:>13}{:>10.1f} GB/s\n", row["devices"].dump(),
                        seconds(row["ring_seconds"]), seconds(row["nvls_seconds"]),
                        seconds(row["on_devices_seconds"]), seconds(row["through_cpu_seconds"]),
                        row["copy_gb_per_s"].get<double>());
  }
  return text;
}

}  // namespace lockstep::tools
