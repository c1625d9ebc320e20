#include "engine/trace/innermost.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace lockstep::trace {

std::vector<Span> innermost_pieces(std::vector<Span> spans) {
  std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return std::pair(a.begin_ns, -a.end_ns) < std::pair(b.begin_ns, -b.end_ns);
  });
  // Walks over all begins and ends. Of the open spans the one that stands last began last.
  std::vector<std::pair<std::int64_t, std::size_t>> edges;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    edges.emplace_back(spans[i].begin_ns, i);
    edges.emplace_back(spans[i].end_ns, i);
  }
  std::sort(edges.begin(), edges.end());
  std::vector<Span> pieces;
  std::set<std::size_t> open;
  std::size_t last = spans.size();  // whose piece stands last
  std::int64_t from_ns = 0;
  for (const auto& [time_ns, index] : edges) {
    if (!open.empty() && from_ns < time_ns) {
      const std::size_t innermost = *open.rbegin();
      if (innermost != last || pieces.back().end_ns != from_ns) {
        pieces.push_back(spans[innermost]);
        pieces.back().begin_ns = from_ns;
      }
      pieces.back().end_ns = time_ns;
      last = innermost;
    }
    from_ns = time_ns;
    if (!open.insert(index).second) open.erase(index);  // its second edge: it ends
  }
  return pieces;
}

bool has_device_spans(std::span<const Span> spans, int rank) {
  return std::any_of(spans.begin(), spans.end(), [rank](const Span& span) {
    return span.rank == rank && span.thread == kDeviceThread;
  });
}

std::vector<Span> pieces_of_rank(std::span<const Span> spans, int rank) {
  const bool is_timed_by_device = has_device_spans(spans, rank);
  std::map<std::pair<std::uint32_t, bool>, std::vector<Span>> threads;
  for (const Span& span : spans) {
    const bool is_on_device = span.thread == kDeviceThread;
    if (span.rank != rank || span.category == Category::step) continue;
    if (is_on_device != is_timed_by_device) continue;
    threads[{span.thread, is_on_device && span.lane == Lane::comm}].push_back(span);
  }
  std::vector<Span> pieces;
  for (auto& [thread, list] : threads) {
    std::vector<Span> of_thread = innermost_pieces(std::move(list));
    pieces.insert(pieces.end(), of_thread.begin(), of_thread.end());
  }
  return pieces;
}

bool is_computing(const Span& piece) {
  return piece.lane == Lane::compute && piece.category != Category::communication &&
         piece.category != Category::wait;
}

}  // namespace lockstep::trace
