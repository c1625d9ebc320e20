#include "engine/trace/breakdown.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "engine/core/error.h"

namespace lockstep::trace {

Interval clip(Interval interval, Interval window) {
  return {std::max(interval.begin_ns, window.begin_ns), std::min(interval.end_ns, window.end_ns)};
}

IntervalSet union_of(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](Interval a, Interval b) { return a.begin_ns < b.begin_ns; });
  IntervalSet set;
  for (const Interval interval : intervals) {
    if (interval.begin_ns >= interval.end_ns) {
      continue;
    }
    if (!set.empty() && interval.begin_ns <= set.back().end_ns) {
      set.back().end_ns = std::max(set.back().end_ns, interval.end_ns);
    } else {
      set.push_back(interval);
    }
  }
  return set;
}

IntervalSet intersection_of(const IntervalSet& a, const IntervalSet& b) {
  IntervalSet common;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Interval part = clip(a[i], b[j]);
    if (part.begin_ns < part.end_ns) {
      common.push_back(part);
    }
    if (a[i].end_ns < b[j].end_ns) {
      ++i;
    } else {
      ++j;
    }
  }
  return common;
}

std::int64_t total_ns(const IntervalSet& set) {
  std::int64_t total = 0;
  for (const Interval interval : set) {
    total += interval.end_ns - interval.begin_ns;
  }
  return total;
}

IntervalSet part_inside(const IntervalSet& set, Interval window) {
  const auto first = std::partition_point(set.begin(), set.end(), [&](const Interval& interval) {
    return interval.end_ns <= window.begin_ns;
  });
  IntervalSet part;
  for (auto it = first; it != set.end() && it->begin_ns < window.end_ns; ++it) {
    part.push_back(clip(*it, window));
  }
  return part;
}

std::vector<Span> innermost_pieces(std::vector<Span> spans) {
  std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return std::pair(a.begin_ns, -a.end_ns) < std::pair(b.begin_ns, -b.end_ns);
  });
  // Walks over all begins and ends. The last of the open spans is the one that began last.
  std::vector<std::pair<std::int64_t, std::size_t>> edges;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    edges.emplace_back(spans[i].begin_ns, i);
    edges.emplace_back(spans[i].end_ns, i);
  }
  std::sort(edges.begin(), edges.end());
  std::vector<Span> pieces;
  std::set<std::size_t> open;
  std::size_t last = spans.size();  // the span of the last piece
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

std::vector<Span> pieces_of_rank(std::span<const Span> spans, int rank) {
  const bool is_timed_by_device = std::ranges::any_of(spans, [rank](const Span& span) {
    return span.rank == rank && span.thread == kDeviceThread;
  });
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

namespace {

constexpr double kSecondsPerNanosecond = 1e-9;
constexpr std::size_t kNumCategories = static_cast<std::size_t>(Category::op) + 1;

// True for the spans among which the step's time is divided.
bool shares_time(const Span& span, const Span& step) {
  if (span.thread != step.thread || span.category == Category::step ||
      span.category == Category::op) {
    return false;
  }
  // All devices have the same thread number.
  return step.thread != kDeviceThread || (span.rank == step.rank && span.lane != Lane::comm);
}

// The times at which a rank communicated, and those at which its device computed meanwhile.
struct CommTimes {
  CommTimes(std::span<const Span> spans, int rank) {
    const std::vector<Span> pieces = pieces_of_rank(spans, rank);
    comm = times_of(pieces, [](const Span& piece) { return piece.lane == Lane::comm; });
    overlapped = intersection_of(comm, times_of(pieces, is_computing));
  }
  IntervalSet comm;
  IntervalSet overlapped;
};

double seconds_of(std::int64_t nanoseconds) {
  return kSecondsPerNanosecond * static_cast<double>(nanoseconds);
}

// spans: those of the step's thread that divide its time and reach into the step.
StepBreakdown share_out(std::span<const Span> spans, const Span& step, const CommTimes& times) {
  const Interval window{step.begin_ns, step.end_ns};
  std::vector<Span> inside;
  for (Span span : spans) {
    const Interval part = clip({span.begin_ns, span.end_ns}, window);
    if (part.begin_ns >= part.end_ns) continue;
    span.begin_ns = part.begin_ns;
    span.end_ns = part.end_ns;
    inside.push_back(span);
  }
  std::array<std::int64_t, kNumCategories> nanoseconds{};
  const std::vector<Span> pieces = innermost_pieces(std::move(inside));
  for (const Span& piece : pieces) {
    nanoseconds[static_cast<std::size_t>(piece.category)] += piece.end_ns - piece.begin_ns;
  }
  StepBreakdown breakdown;
  // All parts except the last, unattributed, are in the order of their categories.
  for (std::size_t i = 0; i + 1 < kBreakdownParts.size(); ++i) {
    breakdown.*kBreakdownParts[i].seconds = seconds_of(nanoseconds[i]);
  }
  const IntervalSet covered = times_of(pieces, [](const Span&) { return true; });
  breakdown.unattributed = seconds_of(step.end_ns - step.begin_ns - total_ns(covered));
  breakdown.step = seconds_of(step.end_ns - step.begin_ns);
  breakdown.comm = seconds_of(total_ns(part_inside(times.comm, window)));
  breakdown.overlapped_comm = seconds_of(total_ns(part_inside(times.overlapped, window)));
  breakdown.sequence = step.sequence;
  breakdown.rank = step.rank;
  return breakdown;
}

// The breakdowns of a rank's steps. REQUIRES: the steps are sorted by begin.
std::vector<StepBreakdown> break_down(std::span<const Span> spans,
                                      const std::vector<const Span*>& steps, int rank) {
  std::vector<StepBreakdown> breakdowns;
  const CommTimes times(spans, rank);
  std::vector<Span> sharing;  // the steps' thread's, sorted by begin
  std::vector<Span> open;     // spans that reach into the step
  auto next = sharing.begin();
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Span& step = *steps[i];
    if (i == 0 || step.thread != steps[i - 1]->thread) {
      sharing.clear();
      std::ranges::copy_if(spans, std::back_inserter(sharing),
                           [&](const Span& span) { return shares_time(span, step); });
      std::ranges::stable_sort(sharing, {}, &Span::begin_ns);
      next = sharing.begin();
      open.clear();
    }
    std::erase_if(open, [&](const Span& span) { return span.end_ns <= step.begin_ns; });
    for (; next != sharing.end() && next->begin_ns < step.end_ns; ++next) open.push_back(*next);
    breakdowns.push_back(share_out(open, step, times));
  }
  return breakdowns;
}

// Sorted by begin. A GPU's own spans tell how long its step took; the host was done earlier.
std::vector<const Span*> steps_of(std::span<const Span> spans, int rank) {
  std::vector<const Span*> steps;
  for (const Span& span : spans) {
    if (span.category == Category::step && span.rank == rank) steps.push_back(&span);
  }
  const auto by_device = std::stable_partition(
      steps.begin(), steps.end(), [](const Span* span) { return span->thread == kDeviceThread; });
  if (by_device != steps.begin()) steps.erase(by_device, steps.end());
  std::stable_sort(steps.begin(), steps.end(),
                   [](const Span* a, const Span* b) { return a->begin_ns < b->begin_ns; });
  return steps;
}

}  // namespace

StepBreakdown step_breakdown(std::span<const Span> spans, const Span& step) {
  require(step.category == Category::step, ErrorCode::Usage, "breakdown",
          "expected a span of category step, found \"{}\" of category {}; pass the span that "
          "surrounds the step",
          step.name, to_string(step.category));
  return break_down(spans, {&step}, step.rank)[0];
}

std::vector<StepBreakdown> step_breakdowns(std::span<const Span> spans, int rank) {
  return break_down(spans, steps_of(spans, rank), rank);
}

const Span* median_step_span(std::span<const Span> spans, int rank) {
  std::vector<const Span*> steps = steps_of(spans, rank);
  if (steps.empty()) {
    return nullptr;
  }
  const auto middle = steps.begin() + static_cast<std::ptrdiff_t>((steps.size() - 1) / 2);
  std::nth_element(steps.begin(), middle, steps.end(), [](const Span* a, const Span* b) {
    return std::pair(a->end_ns - a->begin_ns, a->begin_ns) <
           std::pair(b->end_ns - b->begin_ns, b->begin_ns);
  });
  return *middle;
}

std::optional<StepBreakdown> median_step(std::span<const Span> spans, int rank) {
  const Span* step = median_step_span(spans, rank);
  return step == nullptr ? std::nullopt : std::optional(step_breakdown(spans, *step));
}

std::string format_seconds(double seconds) {
  // A value that rounds to the next unit is written in that unit.
  const double size = std::abs(seconds);
  if (size < 999.5e-9) {
    return fmt::format("{:.0f} ns", seconds * 1e9);
  }
  if (size < 999.5e-6) {
    return fmt::format("{:.3g} us", seconds * 1e6);
  }
  if (size < 999.5e-3) {
    return fmt::format("{:.3g} ms", seconds * 1e3);
  }
  return size < 999.5 ? fmt::format("{:.3g} s", seconds) : fmt::format("{:.0f} s", seconds);
}

}  // namespace lockstep::trace
