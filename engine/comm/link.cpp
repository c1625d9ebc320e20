#include "engine/comm/link.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "engine/comm/group.h"

namespace lockstep::comm {

Time Port::occupy(Time earliest, Time length) {
  Time begin = std::max(earliest, forgotten_until_);
  auto next = busy_.begin();  // the first interval after the gap
  for (; next != busy_.end() && next->begin < begin + length; ++next) {
    begin = std::max(begin, next->end);
  }
  const Time end = begin + length;
  busy_.insert(next, {begin, end});
  if (busy_.size() > kMaxIntervals) {
    forgotten_until_ = busy_.front().end;
    busy_.erase(busy_.begin());
  }
  return end;
}

namespace {

using runtime::from_seconds;
using runtime::now;

struct Unit {
  std::string_view name;
  double size;
};

// From large to small.
constexpr std::array<Unit, 4> kTimes{{{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}}};
constexpr std::array<Unit, 4> kBytes{{{"GB/s", 1e9}, {"MB/s", 1e6}, {"KB/s", 1e3}, {"B/s", 1}}};
constexpr std::array<Unit, 3> kBits{{{"Gbit/s", 1e9 / 8}, {"Mbit/s", 1e6 / 8}, {"Kbit/s", 125}}};

constexpr double kMaxLatencySeconds = 1e6;
constexpr double kMinBytesPerSecond = 1;
constexpr double kMaxBytesPerSecond = 1e18;

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  fail(ErrorCode::Usage, "link", "expected LATENCY,BANDWIDTH such as 50us,1GB/s, found '{}': {}",
       text, why);
}

// A number with one of the units; NaN for other text.
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

// In the largest unit that makes it at least 1.
std::string show(double quantity, std::span<const Unit> units) {
  const auto fits = [&](const Unit& unit) { return quantity >= unit.size; };
  const auto found = std::ranges::find_if(units, fits);
  const Unit& best = found == units.end() ? units.back() : *found;
  return fmt::format("{:.6g}{}", quantity / best.size, best.name);
}

class FixedLink final : public LinkModel {
 public:
  explicit FixedLink(const LinkSpec& link)
      : link_(link), latency_(from_seconds(link.latency_seconds)) {}

  std::string description() const override { return to_string(link_); }
  Between between() const override { return Between::hosts; }

  Time begin_call(const CallHeader&) override { return now(); }
  Time latency() const override { return latency_; }
  Time begin_step(Time arrived) override { return std::max(now(), arrived); }
  Time leave(int, Time ready, std::size_t num_bytes) override {
    return egress_.occupy(ready, time_of(num_bytes)) + latency_;
  }
  Time arrive(int, Time arrival, std::size_t num_bytes) override {
    const Time length = time_of(num_bytes);
    return ingress_.occupy(arrival - length, length);
  }

 private:
  Time time_of(std::size_t num_bytes) const {
    return from_seconds(static_cast<double>(num_bytes) / link_.bytes_per_second);
  }

  LinkSpec link_;
  Time latency_;
  Port egress_;
  Port ingress_;
};

}  // namespace

LinkSpec parse_link(std::string_view text) {
  const std::size_t comma = text.find(',');
  if (comma == std::string_view::npos) refuse(text, "there is no comma");
  const std::string_view latency = text.substr(0, comma);
  const std::string_view bandwidth = text.substr(comma + 1);
  LinkSpec link;
  link.latency_seconds = parse_quantity(latency, kTimes);
  if (!(link.latency_seconds >= 0 && link.latency_seconds <= kMaxLatencySeconds)) {
    refuse(text, fmt::format("'{}' is not a latency in ns, us, ms or s", latency));
  }
  link.bytes_per_second = parse_quantity(bandwidth, kBytes);
  if (std::isnan(link.bytes_per_second)) link.bytes_per_second = parse_quantity(bandwidth, kBits);
  if (!(link.bytes_per_second >= kMinBytesPerSecond &&
        link.bytes_per_second <= kMaxBytesPerSecond)) {
    refuse(text, fmt::format("'{}' is not a bandwidth of 1 B/s or more in B/s, KB/s, MB/s, GB/s, "
                             "Kbit/s, Mbit/s or Gbit/s",
                             bandwidth));
  }
  return link;
}

std::string to_string(const LinkSpec& link) {
  const std::string latency = link.latency_seconds == 0 ? "0s" : show(link.latency_seconds, kTimes);
  return fmt::format("{},{}", latency, show(link.bytes_per_second, kBytes));
}

std::unique_ptr<LinkModel> fixed_link(const LinkSpec& link) {
  return std::make_unique<FixedLink>(link);
}

Links fixed_links(const std::optional<LinkSpec>& link) {
  if (!link) return {};
  return [link = *link](std::unique_ptr<Group> group) {
    return behind_links(std::move(group), fixed_link(link));
  };
}

}  // namespace lockstep::comm
