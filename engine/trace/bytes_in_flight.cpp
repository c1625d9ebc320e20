#include "engine/trace/bytes_in_flight.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

namespace lockstep::trace {
namespace {

bool moves_bytes(const Span& span, int rank) {
  const bool is_on_the_way = span.lane == Lane::comm || span.lane == Lane::copy;
  return is_on_the_way && span.rank == rank && span.num_bytes > 0;
}

// Those that count, each lane's by its device where that timed any.
std::vector<Span> movers(std::span<const Span> spans, int rank) {
  std::map<Lane, bool> by_device;
  std::vector<Span> all;
  for (const Span& span : spans) {
    if (!moves_bytes(span, rank)) continue;
    by_device[span.lane] |= span.thread == kDeviceThread;
    all.push_back(span);
  }
  std::stable_sort(all.begin(), all.end(), [](const Span& a, const Span& b) {
    return std::pair(a.begin_ns, -a.end_ns) < std::pair(b.begin_ns, -b.end_ns);
  });
  std::map<std::uint32_t, std::int64_t> end_of_thread;
  std::erase_if(all, [&](const Span& span) {
    const bool is_on_device = span.thread == kDeviceThread;
    if (is_on_device != by_device[span.lane]) return true;
    if (is_on_device) return false;
    std::int64_t& end_ns = end_of_thread.try_emplace(span.thread, span.begin_ns).first->second;
    if (span.end_ns <= end_ns) return true;
    end_ns = span.end_ns;
    return false;
  });
  return all;
}

}  // namespace

std::vector<Sample> bytes_in_flight(std::span<const Span> spans, int rank) {
  std::map<std::int64_t, std::pair<std::size_t, std::size_t>> changes;  // begun and ended
  for (const Span& span : movers(spans, rank)) {
    changes[span.begin_ns].first += span.num_bytes;
    changes[span.end_ns].second += span.num_bytes;
  }
  std::vector<Sample> samples;
  std::size_t num_bytes = 0;
  for (const auto& [time_ns, change] : changes) {
    num_bytes += change.first;
    num_bytes -= change.second;
    const std::size_t before = samples.empty() ? 0 : samples.back().num_bytes;
    if (num_bytes != before) samples.push_back({time_ns, num_bytes, rank});
  }
  return samples;
}

}  // namespace lockstep::trace
