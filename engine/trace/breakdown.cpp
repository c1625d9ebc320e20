#include "engine/trace/breakdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "engine/trace/intervals.h"

namespace lockstep::trace {

namespace {

constexpr double kSecondsPerNanosecond = 1e-9;
constexpr std::size_t kNumCategories = static_cast<std::size_t>(Category::op) + 1;

// The nine parts, in the order in which they are written.
struct Part {
  std::string_view name;
  double StepBreakdown::*seconds;
};
constexpr std::array<Part, 9> kParts = {{{"data", &StepBreakdown::data},
                                         {"copy", &StepBreakdown::copy},
                                         {"forward", &StepBreakdown::forward},
                                         {"backward", &StepBreakdown::backward},
                                         {"exposed comm", &StepBreakdown::exposed_comm},
                                         {"optimizer", &StepBreakdown::optimizer},
                                         {"wait", &StepBreakdown::wait},
                                         {"host", &StepBreakdown::host},
                                         {"unattributed", &StepBreakdown::unattributed}}};

// The spans that share out the step's time, clipped to it; a parent before its children.
std::vector<Span> spans_of_step(std::span<const Span> spans, const Span& step) {
  std::vector<Span> inside;
  for (Span span : spans) {
    if (span.thread != step.thread || span.category == Category::step ||
        span.category == Category::op) {
      continue;
    }
    // All devices share one thread number.
    if (step.thread == kDeviceThread && (span.rank != step.rank || span.lane == Lane::comm)) {
      continue;
    }
    const Interval part = clip({span.begin_ns, span.end_ns}, {step.begin_ns, step.end_ns});
    if (part.begin_ns < part.end_ns) {
      span.begin_ns = part.begin_ns;
      span.end_ns = part.end_ns;
      inside.push_back(span);
    }
  }
  std::stable_sort(inside.begin(), inside.end(), [](const Span& a, const Span& b) {
    return std::pair(a.begin_ns, -a.end_ns) < std::pair(b.begin_ns, -b.end_ns);
  });
  return inside;
}

// The step's time, each instant given to the innermost span around it.
struct Shares {
  std::array<std::vector<Interval>, kNumCategories> of_category;
  std::vector<Interval> uncovered;
};

Shares share_out(const std::vector<Span>& spans, const Span& step) {
  // Walks over all begins and ends. Of the open spans the one that stands last began last.
  std::vector<std::pair<std::int64_t, std::size_t>> edges;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    edges.emplace_back(spans[i].begin_ns, i);
    edges.emplace_back(spans[i].end_ns, i);
  }
  std::sort(edges.begin(), edges.end());
  Shares shares;
  std::set<std::size_t> open;
  std::int64_t from_ns = step.begin_ns;
  const auto give_until = [&](std::int64_t until_ns) {
    if (from_ns < until_ns) {
      auto& share =
          open.empty()
              ? shares.uncovered
              : shares.of_category[static_cast<std::size_t>(spans[*open.rbegin()].category)];
      share.push_back({from_ns, until_ns});
      from_ns = until_ns;
    }
  };
  for (const auto& [time_ns, index] : edges) {
    give_until(time_ns);
    if (!open.insert(index).second) {
      open.erase(index);  // its second edge: it ends
    }
  }
  give_until(step.end_ns);
  return shares;
}

}  // namespace

StepBreakdown step_breakdown(std::span<const Span> spans, const Span& step) {
  require(step.category == Category::step, ErrorCode::Usage, "breakdown",
          "expected a span of category step, found \"{}\" of category {}; pass the span that "
          "surrounds the step",
          step.name, to_string(step.category));
  const Shares shares = share_out(spans_of_step(spans, step), step);
  const auto seconds_of = [&](Category category) {
    const auto& share = shares.of_category[static_cast<std::size_t>(category)];
    return kSecondsPerNanosecond * static_cast<double>(total_ns(share));
  };
  StepBreakdown breakdown;
  breakdown.data = seconds_of(Category::data);
  breakdown.copy = seconds_of(Category::copy);
  breakdown.forward = seconds_of(Category::forward);
  breakdown.backward = seconds_of(Category::backward);
  breakdown.exposed_comm = seconds_of(Category::communication);
  breakdown.optimizer = seconds_of(Category::optimizer);
  breakdown.wait = seconds_of(Category::wait);
  breakdown.host = seconds_of(Category::host);
  breakdown.unattributed = kSecondsPerNanosecond * static_cast<double>(total_ns(shares.uncovered));
  breakdown.step = kSecondsPerNanosecond * static_cast<double>(step.end_ns - step.begin_ns);

  const IntervalSet comm = busy_time(spans, step.rank, Lane::comm, {step.begin_ns, step.end_ns});
  const IntervalSet exposed =
      union_of(shares.of_category[static_cast<std::size_t>(Category::communication)]);
  breakdown.overlapped_comm =
      kSecondsPerNanosecond *
      static_cast<double>(total_ns(comm) - total_ns(intersection_of(comm, exposed)));
  return breakdown;
}

const Span* median_step_span(std::span<const Span> spans, int rank) {
  std::vector<const Span*> steps;
  for (const Span& span : spans) {
    if (span.category == Category::step && span.rank == rank) {
      steps.push_back(&span);
    }
  }
  if (steps.empty()) {
    return nullptr;
  }
  // What a GPU's step took is what its own spans say; the host was done earlier.
  const auto by_device = std::stable_partition(
      steps.begin(), steps.end(), [](const Span* span) { return span->thread == kDeviceThread; });
  if (by_device != steps.begin()) steps.erase(by_device, steps.end());
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

std::string to_string(const StepBreakdown& breakdown) {
  const auto line = [&](std::string_view name, double seconds) {
    const double percent = breakdown.step > 0 ? 100 * seconds / breakdown.step : 0;
    return fmt::format("{:<14}{:>10} {:>6.1f} %\n", name, format_seconds(seconds), percent);
  };
  std::string table;
  for (const Part& part : kParts) {
    table += line(part.name, breakdown.*part.seconds);
  }
  table += line("step", breakdown.step);
  table += fmt::format("{:<14}{:>10}  (hidden behind the above)\n", "overlapped",
                       format_seconds(breakdown.overlapped_comm));
  return table;
}

}  // namespace lockstep::trace
