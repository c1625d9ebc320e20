#include "tools/report/lane_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/report/row_table.h"
#include "tools/report/status_line.h"

namespace lockstep::tools {
namespace {

constexpr std::chrono::milliseconds kBetweenPictures(100);
constexpr double kBarWidth = 20;
constexpr std::size_t kMostLinks = 6;

std::string bar(double share) {
  const auto full = static_cast<std::size_t>(std::lround(kBarWidth * std::clamp(share, 0.0, 1.0)));
  return std::string(full, '#') + std::string(static_cast<std::size_t>(kBarWidth) - full, '.');
}

std::string device_line(int index, const slow_motion::Machine::DeviceState& state, double elapsed) {
  const double busy = elapsed > 0 ? state.busy_seconds / elapsed : 0;
  return fmt::format("gpu{:<3} {} {:>3.0f} % busy  {:<24} {}", index, bar(busy), 100 * busy,
                     state.kernel != nullptr ? state.kernel : "-",
                     state.communication != nullptr ? state.communication : "");
}

// "plx0 -> cpu0".
std::string name_of(const predict::Topology& topology, predict::Hop hop) {
  const predict::Link& link = topology.links[hop / 2];
  const bool is_forward = hop % 2 == 0;
  return fmt::format("{} -> {}", topology.nodes[is_forward ? link.a : link.b].name,
                     topology.nodes[is_forward ? link.b : link.a].name);
}

}  // namespace

std::vector<std::string> lane_lines(const slow_motion::Machine& machine) {
  std::vector<std::string> lines;
  const double elapsed = runtime::to_seconds(machine.end() - machine.origin()) / machine.factor();
  const auto states = machine.device_states();
  for (std::size_t i = 0; i < states.size(); ++i) {
    lines.push_back(device_line(machine.devices()[i], states[i], elapsed));
  }
  const std::vector<double> bytes = machine.bytes_by_hop();
  std::vector<std::pair<double, predict::Hop>> links;
  for (predict::Hop hop = 0; hop < bytes.size(); ++hop) links.emplace_back(bytes[hop], hop);
  std::ranges::sort(links, std::greater<>());
  for (std::size_t i = 0; i < std::min(links.size(), kMostLinks); ++i) {
    const auto [sent, hop] = links[i];
    if (sent == 0) break;
    lines.push_back(
        fmt::format("{:<20} {:>10}, {:>6.2f} GB/s in the mean", name_of(machine.topology(), hop),
                    format_bytes(static_cast<std::size_t>(sent)), sent / elapsed / 1e9));
  }
  return lines;
}

LaneWatch::LaneWatch(const slow_motion::Machine& machine, bool is_on) : machine_(machine) {
  if (!is_on || !has_status_line()) return;
  thread_ = std::thread([this] { draw(); });
}

LaneWatch::~LaneWatch() {
  is_over_.store(true);
  if (thread_.joinable()) thread_.join();
}

void LaneWatch::draw() {
  while (!is_over_.load()) {
    std::this_thread::sleep_for(kBetweenPictures);
    const std::vector<std::string> lines = lane_lines(machine_);
    std::string picture;
    if (num_lines_ > 0) picture += fmt::format("\033[{}A", num_lines_);
    for (const std::string& line : lines) picture += fmt::format("\r{}\033[K\n", line);
    num_lines_ = lines.size();  // links become more, never fewer
    fmt::print(stderr, "{}", picture);
    std::fflush(stderr);
  }
}

}  // namespace lockstep::tools
