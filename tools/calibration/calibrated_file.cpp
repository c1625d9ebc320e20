#include "tools/calibration/measurement.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/comm/store/hello.h"
#include "simulate/predict/all_reduce_cost.h"
#include "tools/prediction/run_workload.h"
#include "tools/report/host_info.h"

namespace lockstep::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kSmallBytes = 16 << 10;  // a size at which latency counts
constexpr double kLargeBytes = 4 << 20;   // a size at which bandwidth counts
constexpr double kMostBytesPerSecond = 1e13;
constexpr double kLeastBytesPerSecond = 1e6;

// The best rate of any layer, counting 2 operations per multiplication.
double peak_flops(const predict::LayerGrid& forward) {
  double best = 0;
  std::size_t i = 0;
  for (const double rows : forward.axes[0]) {
    for (const double inputs : forward.axes[1]) {
      for (const double outputs : forward.axes[2]) {
        best = std::max(best, 2 * rows * inputs * outputs / forward.seconds[i++]);
      }
    }
  }
  return best;
}

double peak_traffic(const predict::Curve& traffic) {
  double best = 0;
  for (std::size_t i = 0; i < traffic.sizes.size(); ++i) {
    best = std::max(best, traffic.sizes[i] / traffic.seconds[i]);
  }
  return best;
}

// Finds the value between two bounds at which charged() equals the measured time, by bisection on a
// logarithmic scale. REQUIRES: charged falls.
template <typename Charged>
double solve(double low, double high, double measured, const Charged& charged) {
  for (int i = 0; i < 60; ++i) {
    const double middle = std::sqrt(low * high);
    (charged(middle) > measured ? low : high) = middle;
  }
  return low;
}

void fit_links(predict::Topology& topology, const predict::Curve& measured) {
  const auto charge = [&](double bytes) {
    predict::Network network(topology);
    return predict::own_plan_seconds(network, 2, plan::AllReducePlan::automatic,
                                     static_cast<std::size_t>(bytes));
  };
  const auto set_latency = [&](double seconds) {
    for (predict::Link& link : topology.links) link.latency_seconds = seconds;
  };
  for (int i = 0; i < 4; ++i) {  // each fit depends a little on the other
    const double bandwidth =
        solve(kLeastBytesPerSecond, kMostBytesPerSecond, measured.at(kLargeBytes), [&](double b) {
          for (predict::Link& link : topology.links) link.bytes_per_second = b;
          return charge(kLargeBytes);
        });
    for (predict::Link& link : topology.links) link.bytes_per_second = bandwidth;
    const double rate = solve(1, 1e12, measured.at(kSmallBytes), [&](double steps_per_second) {
      set_latency(1 / steps_per_second);
      return charge(kSmallBytes);
    });
    set_latency(1 / rate);
  }
}

Json microseconds(const std::vector<double>& seconds) {
  Json list = Json::array();
  for (const double value : seconds) list.push_back(std::round(value * 1e10) / 1e4);
  return list;
}

Json layers_json(const predict::MeasuredMachine& measured) {
  return {{"rows", measured.forward.axes[0]},
          {"inputs", measured.forward.axes[1]},
          {"outputs", measured.forward.axes[2]},
          {"forward_us", microseconds(measured.forward.seconds)},
          {"backward_us", microseconds(measured.backward.seconds)},
          {"weights_backward_us", microseconds(measured.weights_backward.seconds)}};
}

Json measured_json(const predict::MeasuredMachine& measured) {
  Json traffic = Json::array();
  for (const predict::Curve& curve : measured.traffic) {
    Json json{{"devices", traffic.size() + 1}};
    json.update(curve_json(curve));
    traffic.push_back(std::move(json));
  }
  Json all_reduces = Json::array();
  for (const predict::MeasuredAllReduce& all_reduce : measured.all_reduces) {
    Json json{{"ranks", predict::to_string(all_reduce.ranks)}, {"devices", all_reduce.num_devices}};
    json.update(curve_json(all_reduce.curve));
    all_reduces.push_back(std::move(json));
  }
  return {{"threads_per_device", measured.threads_per_device},
          {"layers", layers_json(measured)},
          {"layers_beside", measured.layers_beside},
          {"traffic", std::move(traffic)},
          {"batch", curve_json(measured.batch)},
          {"loss",
           {{"bytes", measured.loss_forward.sizes},
            {"forward_us", microseconds(measured.loss_forward.seconds)},
            {"backward_us", microseconds(measured.loss_backward.seconds)}}},
          {"overlap", {{"compute", measured.overlap.compute}, {"comm", measured.overlap.comm}}},
          {"deviation", measured.deviation},
          {"all_reduces", std::move(all_reduces)}};
}

}  // namespace

predict::Topology calibrated_topology(const predict::MeasuredMachine& measured,
                                      std::size_t num_devices) {
  const Json host = host_info();
  predict::Topology topology;
  topology.name = comm::host_name_of(comm::host_identity());
  topology.source = fmt::format("lockstep calibrate, {}, {}", host.at("os").get<std::string>(),
                                host.at("build").get<std::string>());
  predict::DeviceProfile& device = topology.device;
  device.name = device_name(cpu_name(), measured.threads_per_device);
  device.flops_per_second = peak_flops(measured.forward);
  device.memory_bytes_per_second = peak_traffic(measured.traffic.front());
  device.memory_bytes = host.at("memory_bytes").get<double>() / static_cast<double>(num_devices);
  device.launch_seconds = measured.traffic.front().seconds.front();
  device.measured = std::make_shared<predict::MeasuredMachine>(measured);
  const auto largest_rate = [](const predict::Curve& traffic) {
    return traffic.sizes.back() / traffic.seconds.back();
  };
  topology.host_thread_bytes_per_second = largest_rate(measured.traffic.front());
  topology.host_bytes_per_second =
      static_cast<double>(num_devices) * largest_rate(measured.traffic.back());
  topology.nodes.push_back({"memory", predict::NodeKind::cpu});
  for (std::size_t i = 0; i < num_devices; ++i) {
    topology.nodes.push_back({fmt::format("cpu:{}", i), predict::NodeKind::gpu});
    topology.gpus.push_back(i + 1);
    topology.links.push_back({i + 1, 0, predict::LinkKind::memory, device.memory_bytes_per_second});
  }
  if (num_devices > 1) fit_links(topology, measured.all_reduces.front().curve);
  return topology;
}

Json topology_json(const predict::Topology& topology) {
  const predict::DeviceProfile& device = topology.device;
  Json nodes = Json::array();
  for (const predict::Node& node : topology.nodes) {
    nodes.push_back(
        {{"name", node.name}, {"kind", node.kind == predict::NodeKind::cpu ? "cpu" : "device"}});
  }
  Json links = Json::array();
  for (const predict::Link& link : topology.links) {
    links.push_back({{"from", topology.nodes[link.a].name},
                     {"to", topology.nodes[link.b].name},
                     {"kind", "memory"},
                     {"gb_per_s", link.bytes_per_second / 1e9},
                     {"latency_us", link.latency_seconds * 1e6}});
  }
  return {{"schema", "lockstep.topology/1"},
          {"name", topology.name},
          {"source", topology.source},
          {"device",
           {{"name", device.name},
            {"tflops", device.flops_per_second / 1e12},
            {"memory_gb_per_s", device.memory_bytes_per_second / 1e9},
            {"memory_gb", device.memory_bytes / 1e9},
            {"launch_us", device.launch_seconds * 1e6}}},
          {"host",
           {{"gb_per_s", topology.host_bytes_per_second / 1e9},
            {"thread_gb_per_s", topology.host_thread_bytes_per_second / 1e9}}},
          {"nodes", std::move(nodes)},
          {"links", std::move(links)},
          {"measured", measured_json(*device.measured)}};
}

Json curve_json(const predict::Curve& curve) {
  return {{"bytes", curve.sizes}, {"us", microseconds(curve.seconds)}};
}

}  // namespace lockstep::tools
