#include "tools/prediction/hardware.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "engine/core/text.h"
#include "tools/prediction/known_gpus.h"
#include "tools/prediction/name_words.h"
#include "tools/prediction/network_speed.h"

namespace lockstep::tools {
namespace {

constexpr std::size_t kMaxHosts = 4096;
constexpr std::string_view kServers[] = {
    "", "", "", "gtx1080ti-pcie3-8", "rtx4090-pcie4-8", "rtx5090-pcie5-8"};  // by PCIe's generation

struct Counted {
  std::string name;
  std::size_t count = 1;
};

// "DGX-1 x2" and "2x DGX-1": DGX-1 and 2.
Counted split_count(const std::string& hardware) {
  std::size_t count = 0;
  const char* const begin = hardware.data();
  const char* const end = begin + hardware.size();
  const auto is_count = [&](std::errc error) {
    return error == std::errc() && count >= 1 && count <= kMaxHosts;
  };
  if (const std::size_t place = hardware.rfind(" x"); place != std::string::npos) {
    const auto [stop, error] = std::from_chars(begin + place + 2, end, count);
    if (is_count(error) && stop == end) return {hardware.substr(0, place), count};
  }
  const auto [stop, error] = std::from_chars(begin, end, count);
  if (is_count(error) && stop < end && *stop == 'x') {
    const std::size_t rest =
        hardware.find_first_not_of(' ', static_cast<std::size_t>(stop - begin) + 1);
    if (rest != std::string::npos) return {hardware.substr(rest), count};
  }
  return {hardware, 1};
}

bool has_any(std::string_view words, std::initializer_list<std::string_view> phrases) {
  return std::ranges::any_of(phrases,
                             [&](std::string_view phrase) { return has_words(words, phrase); });
}

// How the GPUs of a host are joined, as far as the words say.
struct Links {
  bool pcie = false;
  bool nvlink = false;
  bool nvswitch = false;
  int generation = 0;  // 0: not said

  bool any() const { return pcie || nvlink || nvswitch; }
};

Links links_in(const std::string& words) {
  Links links;
  const auto look = [&](const std::string& name, bool& is_said) {
    is_said = has_words(words, name);
    for (int i = 1; i <= 6; ++i) {
      if (!has_words(words, name + std::to_string(i))) continue;
      is_said = true;
      links.generation = i;
    }
  };
  look("pcie", links.pcie);
  look("nvlink", links.nvlink);
  links.nvswitch = has_words(words, "nvswitch");
  if (links.nvlink || links.nvswitch) links.pcie = false;  // PCIe is how they reach the host
  return links;
}

FoundHardware problem(std::string text) {
  return {std::nullopt, std::move(text)};
}

FoundHardware preset(std::string_view name) {
  return {predict::find_topology(std::string(name)), ""};
}

FoundHardware find_host(const std::string& hardware, const std::string& interconnect) {
  const std::string name = name_words(hardware);
  Links links = links_in(name_words(interconnect));
  if (!links.any()) links = links_in(name);
  const KnownGpu* gpu = find_gpu(name);
  // "TITAN X (Pascal)", "Pascal TITAN X".
  if (gpu && gpu->words == "titan x" && has_words(name, "pascal"))
    gpu = find_gpu(" titan x pascal ");
  if (!gpu && has_any(name, {"pcie3 box", "pcie3 server"})) return preset("pcie3-switches-8");
  if (!gpu) {
    return problem(
        fmt::format("'{}' names no GPU that is known: {}; --workload with a topology "
                    "file predicts any other",
                    shown(hardware), known_gpu_names()));
  }
  const bool wants_switch = links.nvswitch || has_words(name, "dgx 2");
  if (wants_switch || links.nvlink) {
    const bool has_switch = gpu->nvlink >= 3;  // DGX A100 and later
    if (gpu->nvlink_preset.empty() || (wants_switch && !has_switch) ||
        (links.generation != 0 && links.nvlink && links.generation != gpu->nvlink)) {
      return problem(fmt::format(
          "no preset has '{}' joined by {}{}; --workload with a topology "
          "file predicts such a machine",
          shown(hardware), wants_switch ? "an NVSwitch" : "NVLink",
          !wants_switch && links.generation != 0 ? std::to_string(links.generation) : ""));
    }
    return preset(gpu->nvlink_preset);
  }
  if (!links.pcie && !gpu->nvlink_preset.empty()) return preset(gpu->nvlink_preset);
  const int generation = links.pcie && links.generation != 0 ? links.generation : gpu->pcie;
  if (!gpu->preset.empty() && generation == gpu->pcie) return preset(gpu->preset);
  if (generation < 3 || generation > 5) {
    return problem(fmt::format("no preset is a server of PCIe{}: PCIe3, PCIe4 and PCIe5 are known",
                               generation));
  }
  FoundHardware server = preset(kServers[generation]);
  server.topology->device = gpu->device();
  server.topology->name += " with " + server.topology->device.name;
  return server;
}

}  // namespace

std::string without_count(const std::string& hardware) {
  return split_count(hardware).name;
}

FoundHardware find_hardware(const std::string& hardware, const std::string& interconnect,
                            std::size_t num_gpus) {
  const Counted counted = split_count(hardware);
  FoundHardware found = find_host(counted.name, interconnect);
  if (!found.topology) return found;
  predict::Topology& host = *found.topology;
  const std::string words = name_words(counted.name);
  const bool is_full = has_any(words, {"dgx", "hgx"});
  const bool counts_hosts = is_full || has_any(words, {"server", "servers", "node", "nodes", "box",
                                                       "machine", "host", "hosts", "machines"});
  std::size_t per_host = host.gpus.size();
  if (counts_hosts && !is_full && counted.count > 1 && num_gpus >= counted.count) {
    per_host = std::min(per_host, (num_gpus + counted.count - 1) / counted.count);
  }
  const std::size_t num_hosts = (num_gpus + per_host - 1) / per_host;
  if (num_hosts == 1) return found;
  const std::optional<NetworkSpeed> speed = find_network_speed(interconnect);
  if (!speed) {
    return problem(
        fmt::format("{} GPUs are {} hosts of '{}' with {} each, and '{}' says no speed "
                    "of the network between them, such as 100GbE, 8x400GbE or 12.5 GB/s",
                    num_gpus, num_hosts, shown(host.name), per_host, shown(interconnect)));
  }
  host.gpus.resize(per_host);
  return {predict::make_cluster(host, num_hosts, speed->gigabits_per_second, speed->ports), ""};
}

}  // namespace lockstep::tools
