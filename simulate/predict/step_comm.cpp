#include "simulate/predict/step_comm.h"

#include <algorithm>
#include <functional>

#include "simulate/predict/kernel_cost.h"

namespace lockstep::predict {

Exchange reduce_on_devices(Network& network, std::size_t num_devices,
                           std::vector<std::size_t> tensor_bytes) {
  const DeviceProfile& device = network.topology().device;
  std::ranges::sort(tensor_bytes, std::greater<>());
  std::vector<double> owned(num_devices, 0);
  std::vector<std::size_t> num_owned(num_devices, 0);
  for (const std::size_t bytes : tensor_bytes) {
    const auto owner = static_cast<std::size_t>(std::ranges::min_element(owned) - owned.begin());
    owned[owner] += static_cast<double>(bytes);
    ++num_owned[owner];
  }
  Traffic reduce(network);
  Traffic broadcast(network);
  double total = 0;
  for (std::size_t owner = 0; owner < num_devices; ++owner) {
    total += owned[owner];
    for (std::size_t other = 0; other < num_devices; ++other) {
      if (other == owner || owned[owner] == 0) continue;
      reduce.add(network.gpu(other), network.gpu(owner), owned[owner]);
      broadcast.add(network.gpu(owner), network.gpu(other), owned[owner]);
    }
  }
  const double most = *std::ranges::max_element(owned);
  const auto others = static_cast<double>(num_devices - 1);
  const double copies =
      static_cast<double>(*std::ranges::max_element(num_owned)) * others * device.launch_seconds;
  const double sums = (others + 2) * most / device.memory_bytes_per_second;
  return {reduce.seconds() + copies + sums, broadcast.seconds() + copies,
          others * most + (total - most)};
}

Exchange reduce_on_first(Network& network, std::size_t num_devices,
                         const std::vector<std::size_t>& tensor_bytes) {
  const auto others = static_cast<double>(num_devices - 1);
  Exchange exchange;
  for (const std::size_t num_bytes : tensor_bytes) {
    const auto bytes = static_cast<double>(num_bytes);
    Traffic reduce(network);
    for (std::size_t other = 1; other < num_devices; ++other) {
      reduce.add(network.gpu(other), network.gpu(0), bytes);
    }
    exchange.reduce_seconds +=
        reduce.seconds() + traffic_seconds(network.topology().device, (others + 2) * bytes);
    exchange.bytes_of_busiest += others * bytes;
  }
  return exchange;
}

namespace {

// Several hosts: each keeps its part of the parameters, and gets that part of every host's sums.
void add_between_hosts(Network& network, std::size_t num_devices, double num_bytes,
                       Traffic& traffic) {
  const std::size_t per_host = network.topology().gpus_per_host();
  const std::size_t num_hosts = (num_devices + per_host - 1) / per_host;
  const double part = num_bytes / static_cast<double>(num_hosts);
  for (std::size_t h = 0; h < num_hosts; ++h) {
    for (std::size_t g = 0; g < num_hosts; ++g) {
      if (g == h) continue;
      traffic.add(network.cpu_of(h * per_host), network.cpu_of(g * per_host), part);
    }
  }
}

enum class Way { up, down };

double host_seconds(Network& network, std::size_t num_devices, double num_bytes, Way way) {
  Traffic traffic(network);
  for (std::size_t i = 0; i < num_devices; ++i) {
    const std::size_t gpu = network.gpu(i), cpu = network.cpu_of(i);
    traffic.add(way == Way::up ? gpu : cpu, way == Way::up ? cpu : gpu, num_bytes);
  }
  add_between_hosts(network, num_devices, num_bytes, traffic);
  return traffic.seconds();
}

}  // namespace

double to_host_seconds(Network& network, std::size_t num_devices, double num_bytes) {
  return host_seconds(network, num_devices, num_bytes, Way::up);
}

double from_host_seconds(Network& network, std::size_t num_devices, double num_bytes) {
  return host_seconds(network, num_devices, num_bytes, Way::down);
}

double host_sum_seconds(double host_bytes_per_second, std::size_t num_devices, double num_bytes) {
  return (static_cast<double>(num_devices) + 2) * num_bytes / host_bytes_per_second;
}

double host_update_seconds(double host_bytes_per_second, double num_bytes) {
  return 9 * num_bytes / host_bytes_per_second;
}

}  // namespace lockstep::predict
