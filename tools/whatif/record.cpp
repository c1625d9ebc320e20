#include "tools/whatif/record.h"

#include <fmt/format.h>

#include <algorithm>

#include "simulate/predict/all_reduce_cost.h"

namespace lockstep::tools {
namespace {

using predict::Strategy;

// tests/tools/check_prediction_test.py holds these to the published tables.
constexpr Record kNvlink = {"NVLink", 68, 0.0313, 0.1243, 1.08};
constexpr Record kPcie = {"PCIe with peer access", 30, 0.0542, 0.3178, 1.17};
constexpr Record kThroughHost = {"through host memory", 41, 0.0937, 0.5452, 1.17};
constexpr Record kBetweenHosts = {"between hosts", 54, 0.0792, 0.4064, 1.19};
constexpr Record kSummedOnHosts = {"sums on the host", 65, 0.0629, 0.2866, 1.14};
// llm.c's steps on eight A100s and eight H100s, beside GPT-2 (docs/prediction-record.md).
constexpr Record kComputed = {"kernels priced by a data sheet", 2, 0.098, 0.137, 1.16};

bool is_published(Strategy strategy) {
  switch (strategy) {
    case Strategy::cpu_reduce:
    case Strategy::cpu_parameter_server:
    case Strategy::device_all_reduce:
    case Strategy::nccl_replicated:
    case Strategy::ddp:
      return true;
    default:
      return false;
  }
}

bool has_kind(const predict::Topology& topology, predict::LinkKind kind) {
  return std::ranges::any_of(topology.links,
                             [&](const predict::Link& link) { return link.kind == kind; });
}

}  // namespace

std::optional<Record> record_of(predict::Network& network, Strategy strategy,
                                std::size_t num_devices) {
  const predict::Topology& topology = network.topology();
  if (num_devices < 2 || !is_published(strategy)) return std::nullopt;
  const bool sums_on_host =
      strategy == Strategy::cpu_reduce || strategy == Strategy::cpu_parameter_server;
  if (sums_on_host) return kSummedOnHosts;
  if (num_devices > topology.gpus_per_host()) return kBetweenHosts;
  if (predict::nccl_group(network, num_devices).over_nvlink) return kNvlink;
  if (has_kind(topology, predict::LinkKind::memory)) return std::nullopt;
  for (std::size_t i = 0; i < num_devices; ++i) {
    const std::size_t next = network.gpu((i + 1) % num_devices);
    if (!topology.has_peer_access(network.gpu(i), next)) return kThroughHost;
  }
  return kPcie;
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
