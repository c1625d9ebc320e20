#include "tools/prediction/hardware.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <string_view>
#include <utility>

namespace lockstep::tools {
namespace {

using Words = std::pair<std::string_view, std::string_view>;  // found in the name, preset

constexpr std::array<Words, 17> kGpus = {{{"pascal", "titanx-pascal-dual-root-8"},
                                          {"titan xp", "titanx-pascal-dual-root-8"},
                                          {"titan x", "titanx-maxwell-dual-root-8"},
                                          {"titanx", "titanx-maxwell-dual-root-8"},
                                          {"m40", "titanx-maxwell-dual-root-8"},
                                          {"1080", "gtx1080ti-pcie3-8"},
                                          {"2080", "gtx1080ti-pcie3-8"},
                                          {"k80", "k80-p2-16x"},
                                          {"pcie3", "pcie3-switches-8"},
                                          {"p100", "dgx1-p100"},
                                          {"v100", "dgx1-v100"},
                                          {"a100", "dgx-a100"},
                                          {"h100", "hgx-h100-8"},
                                          {"h200", "hgx-h200-8"},
                                          {"5090", "rtx5090-pcie5-8"},
                                          {"4090", "rtx4090-pcie4-8"},
                                          {"3090", "rtx4090-pcie4-8"}}};

constexpr std::array<Words, 9> kInterconnects = {{{"pcie3", "gtx1080ti-pcie3-8"},
                                                  {"pcie4", "rtx4090-pcie4-8"},
                                                  {"pcie5", "rtx5090-pcie5-8"},
                                                  {"nvlink1", "dgx1-p100"},
                                                  {"nvlink2", "dgx1-v100"},
                                                  {"nvlink3", "dgx-a100"},
                                                  {"nvlink4", "hgx-h100-8"},
                                                  {"nvswitch", "dgx-a100"},
                                                  {"pcie", "gtx1080ti-pcie3-8"}}};

std::string lower(const std::string& text) {
  std::string result;
  for (const char c : text) {
    result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return result;
}

template <std::size_t n>
std::string_view find_word(const std::array<Words, n>& words, const std::string& text) {
  for (const auto& [word, preset] : words) {
    if (text.find(word) != std::string::npos) return preset;
  }
  return {};
}

// "DGX-1 x2": 2. 1 without such an end.
std::size_t host_count(const std::string& hardware) {
  const std::size_t place = hardware.rfind(" x");
  std::size_t count = 1;
  if (place == std::string::npos) return count;
  const char* const end = hardware.data() + hardware.size();
  const auto [stop, error] = std::from_chars(hardware.data() + place + 2, end, count);
  return error == std::errc() && stop == end && count >= 1 && count <= 4096 ? count : 1;
}

// The number before "gb" or at the end before "g": "100GbE", "25 Gb/s". 0: none.
double gigabits(const std::string& interconnect) {
  const std::size_t unit = interconnect.find('g');
  if (unit == std::string::npos) return 0;
  std::size_t begin = unit;
  while (begin > 0 && (std::isdigit(static_cast<unsigned char>(interconnect[begin - 1])) != 0 ||
                       interconnect[begin - 1] == ' ')) {
    --begin;
  }
  while (begin < unit && interconnect[begin] == ' ') ++begin;
  double value = 0;
  std::from_chars(interconnect.data() + begin, interconnect.data() + unit, value);
  return value;
}

bool has_nvlink(const predict::Topology& topology) {
  return std::ranges::any_of(topology.links, [](const predict::Link& link) {
    return link.kind == predict::LinkKind::nvlink;
  });
}

}  // namespace

std::string without_host_count(const std::string& hardware) {
  return host_count(hardware) > 1 ? hardware.substr(0, hardware.rfind(" x")) : hardware;
}

std::optional<predict::Topology> find_hardware(const std::string& hardware,
                                               const std::string& interconnect,
                                               std::size_t num_gpus) {
  const std::string link = lower(interconnect);
  const std::string_view by_gpu = find_word(kGpus, lower(hardware));
  const std::string_view by_link = find_word(kInterconnects, link);
  if (by_gpu.empty() && by_link.empty()) return std::nullopt;
  predict::Topology host = predict::find_topology(std::string(by_gpu.empty() ? by_link : by_gpu));
  if (link.starts_with("pcie") && has_nvlink(host)) {
    const predict::DeviceProfile device = host.device;
    host = predict::find_topology(std::string(by_link));
    host.device = device;
  }
  const std::size_t per_host = host.gpus.size();
  const std::size_t num_hosts =
      std::max(host_count(hardware), (num_gpus + per_host - 1) / per_host);
  if (num_hosts == 1) return host;
  const double speed = gigabits(link);
  if (speed <= 0 || num_hosts > 4096) return std::nullopt;
  host.gpus.resize(std::min(per_host, (num_gpus + num_hosts - 1) / num_hosts));
  return predict::make_cluster(host, num_hosts, speed, 1);
}

}  // namespace lockstep::tools
