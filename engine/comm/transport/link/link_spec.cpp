#include "engine/comm/transport/link/link_spec.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <span>

#include "engine/core/error.h"

namespace lockstep::comm {
namespace {

struct Unit {
  std::string_view name;
  double size;
};

// The shown ones from large to small.
constexpr std::array<Unit, 4> kTimes{{{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}}};
constexpr std::array<Unit, 4> kBytes{{{"GB/s", 1e9}, {"MB/s", 1e6}, {"KB/s", 1e3}, {"B/s", 1}}};
constexpr std::array<Unit, 3> kBits{{{"Gbit/s", 1e9 / 8}, {"Mbit/s", 1e6 / 8}, {"Kbit/s", 125}}};

constexpr double kMaxLatencySeconds = 1e6;
constexpr double kMinBytesPerSecond = 1;
constexpr double kMaxBytesPerSecond = 1e18;

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  fail(ErrorCode::Usage, "--link", "expected LATENCY,BANDWIDTH such as 50us,1GB/s, found '{}': {}",
       text, why);
}

// A number with one of the units; NaN where it is none.
double parse_quantity(std::string_view text, std::span<const Unit> units) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(number)) return std::nan("");
  for (const Unit& unit : units) {
    if (std::string_view(rest, end) == unit.name) return number * unit.size;
  }
  return std::nan("");
}

// In the largest unit of which it is at least one.
std::string show(double quantity, std::span<const Unit> units) {
  const Unit* best = &units.back();
  for (const Unit& unit : units) {
    if (quantity < unit.size) continue;
    best = &unit;
    break;
  }
  return fmt::format("{:.6g}{}", quantity / best->size, best->name);
}

}  // namespace

LinkSpec parse_link(std::string_view text) {
  const std::size_t comma = text.find(',');
  if (comma == std::string_view::npos) refuse(text, "there is no comma");
  const std::string_view latency = text.substr(0, comma);
  const std::string_view bandwidth = text.substr(comma + 1);
  LinkSpec link;
  link.latency_seconds = parse_quantity(latency, kTimes);
  if (!(link.latency_seconds >= 0 && link.latency_seconds <= kMaxLatencySeconds)) {
    refuse(text, fmt::format("'{}' is no latency in ns, us, ms or s", latency));
  }
  link.bytes_per_second = parse_quantity(bandwidth, kBytes);
  if (std::isnan(link.bytes_per_second)) link.bytes_per_second = parse_quantity(bandwidth, kBits);
  if (!(link.bytes_per_second >= kMinBytesPerSecond &&
        link.bytes_per_second <= kMaxBytesPerSecond)) {
    refuse(text, fmt::format("'{}' is no bandwidth of 1 B/s or more in B/s, KB/s, MB/s, GB/s, "
                             "Kbit/s, Mbit/s or Gbit/s",
                             bandwidth));
  }
  return link;
}

std::string to_string(const LinkSpec& link) {
  const std::string latency = link.latency_seconds == 0 ? "0s" : show(link.latency_seconds, kTimes);
  return fmt::format("{},{}", latency, show(link.bytes_per_second, kBytes));
}

}  // namespace lockstep::comm
