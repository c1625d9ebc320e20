#include "tools/whatif/record.h"

#include <fmt/format.h>

#include <algorithm>

#include "simulate/predict/all_reduce_cost.h"

namespace lockstep::tools {
namespace {

using predict::Strategy;

// tests/tools/check_prediction_test.py holds these to the published tables.
constexpr Record kNvlink = {"NVLink", 68, 0.0313, 0.1243, 1.08};
constexpr Record kPcie = {"PCIe with peer access", 30, 0.0398, 0.2580, 1.09};
constexpr Record kThroughHost = {"through host memory", 41, 0.0564, 0.1743, 1.14};
constexpr Record kBetweenHosts = {"between hosts", 54, 0.0792, 0.4064, 1.19};
constexpr Record kSummedOnHosts = {"sums on the host", 65, 0.0629, 0.2866, 1.14};
constexpr Record kOneProcess = {"DataParallel", 216, 0.0858, 0.5894, 1.23};
constexpr Record kPipeline = {"pipelines over NVLink", 4, 0.0646, 0.1504, 1.16};
constexpr Record kZero3Nvlink = {"zero3 over NVLink", 2, 0.0390, 0.0556, 1.06};
constexpr Record kZero1BetweenHosts = {"zero1 between hosts", 2, 0.2307, 0.2377, 1.24};
constexpr Record kZero2BetweenHosts = {"zero2 between hosts of 1.6 Tb/s", 4, 0.0270, 0.0534, 1.06};
// Its band covers four rows, too, whose start was slow (docs/prediction-record.md).
constexpr Record kZero3BetweenHosts = {"zero3 between hosts of 1.6 Tb/s", 36, 0.0186, 0.0626, 1.07};
// llm.c's steps on eight A100s and eight H100s, beside GPT-2 (docs/prediction-record.md).
constexpr Record kComputed = {"kernels priced by a data sheet", 2, 0.098, 0.137, 1.16};

// No slower network is in the record of zero2 and zero3: eight ports of 200 Gb/s, 192 GB/s as NCCL
// counts them.
constexpr double kFastNetwork = 190e9;

bool has_kind(const predict::Topology& topology, predict::LinkKind kind) {
  return std::ranges::any_of(topology.links,
                             [&](const predict::Link& link) { return link.kind == kind; });
}

const Record& record_of(Way way) {
  switch (way) {
    case Way::nvlink:
      return kNvlink;
    case Way::pcie:
      return kPcie;
    case Way::host_memory:
      return kThroughHost;
    default:
      return kBetweenHosts;
  }
}

}  // namespace

Way way_of(predict::Network& network, std::size_t num_devices) {
  const predict::Topology& topology = network.topology();
  if (num_devices > topology.gpus_per_host()) return Way::network;
  if (predict::nccl_group(network, num_devices).over_nvlink) return Way::nvlink;
  if (has_kind(topology, predict::LinkKind::memory)) return Way::cpu_memory;
  for (std::size_t i = 0; i < num_devices; ++i) {
    const std::size_t next = network.gpu((i + 1) % num_devices);
    if (!topology.has_peer_access(network.gpu(i), next)) return Way::host_memory;
  }
  return Way::pcie;
}

std::optional<Record> record_of(predict::Network& network, Strategy strategy,
                                std::size_t num_devices) {
  if (num_devices < 2) return std::nullopt;
  const Way way = way_of(network, num_devices);
  const bool has_fast_network =
      way == Way::network && network.topology().network_bytes_per_second() >= kFastNetwork;
  switch (strategy) {
    case Strategy::cpu_reduce:
    case Strategy::cpu_parameter_server:
      return kSummedOnHosts;
    case Strategy::data_parallel:
      return way == Way::cpu_memory ? std::nullopt : std::optional(kOneProcess);
    case Strategy::pipeline:
      return way == Way::nvlink ? std::optional(kPipeline) : std::nullopt;
    case Strategy::zero1:
      return way == Way::network ? std::optional(kZero1BetweenHosts) : std::nullopt;
    case Strategy::zero2:
      return has_fast_network ? std::optional(kZero2BetweenHosts) : std::nullopt;
    case Strategy::zero3:
      if (way == Way::nvlink) return kZero3Nvlink;
      return has_fast_network ? std::optional(kZero3BetweenHosts) : std::nullopt;
    case Strategy::device_all_reduce:
    case Strategy::device_parameter_server:
    case Strategy::nccl_replicated:
    case Strategy::ddp:
      return way == Way::cpu_memory ? std::nullopt : std::optional(record_of(way));
    default:
      return std::nullopt;
  }
}

const Record& record_of_computed_kernels() {
  return kComputed;
}

std::string record_text(const Record& record) {
  return fmt::format("{}: {} row{} like this one: mean {:.1f} %, largest {:.1f} %", record.name,
                     record.num_rows, record.num_rows == 1 ? "" : "s", 100 * record.mean_error,
                     100 * record.largest_error);
}

}  // namespace lockstep::tools
