#include "engine/trace/breakdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "engine/trace/innermost.h"

namespace lockstep::trace {

namespace {

constexpr double kSecondsPerNanosecond = 1e-9;
constexpr std::size_t kNumCategories = static_cast<std::size_t>(Category::op) + 1;

// The spans that share out the step's time, clipped to it.
bool shares_time(const Span& span, const Span& step) {
  if (span.thread != step.thread || span.category == Category::step ||
      span.category == Category::op) {
    return false;
  }
  // All devices share one thread number.
  return step.thread != kDeviceThread || (span.rank == step.rank && span.lane != Lane::comm);
}

// When a rank communicated, and when its device computed meanwhile.
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

// spans: those of the step's thread that share out time, and reach into it.
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
  const auto of = [&](Category category) {
    return seconds_of(nanoseconds[static_cast<std::size_t>(category)]);
  };
  StepBreakdown breakdown;
  breakdown.data = of(Category::data);
  breakdown.copy = of(Category::copy);
  breakdown.forward = of(Category::forward);
  breakdown.backward = of(Category::backward);
  breakdown.exposed_comm = of(Category::communication);
  breakdown.optimizer = of(Category::optimizer);
  breakdown.wait = of(Category::wait);
  breakdown.host = of(Category::host);
  const IntervalSet covered = times_of(pieces, [](const Span&) { return true; });
  breakdown.unattributed = seconds_of(step.end_ns - step.begin_ns - total_ns(covered));
  breakdown.step = seconds_of(step.end_ns - step.begin_ns);
  breakdown.comm = seconds_of(total_ns(part_inside(times.comm, window)));
  breakdown.overlapped_comm = seconds_of(total_ns(part_inside(times.overlapped, window)));
  breakdown.sequence = step.sequence;
  breakdown.rank = step.rank;
  return breakdown;
}

// By begin. What a GPU's step took is what its own spans say; the host was done earlier.
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
  std::vector<Span> sharing;
  std::copy_if(spans.begin(), spans.end(), std::back_inserter(sharing),
               [&](const Span& span) { return shares_time(span, step); });
  return share_out(sharing, step, CommTimes(spans, step.rank));
}

std::vector<StepBreakdown> step_breakdowns(std::span<const Span> spans, int rank) {
  std::vector<StepBreakdown> breakdowns;
  const std::vector<const Span*> steps = steps_of(spans, rank);
  const CommTimes times(spans, rank);
  std::vector<Span> sharing;  // of the steps' thread, by begin
  std::vector<Span> open;     // those that reach into the step
  auto next = sharing.begin();
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Span& step = *steps[i];
    if (i == 0 || step.thread != steps[i - 1]->thread) {
      sharing.clear();
      std::copy_if(spans.begin(), spans.end(), std::back_inserter(sharing),
                   [&](const Span& span) { return shares_time(span, step); });
      std::stable_sort(sharing.begin(), sharing.end(),
                       [](const Span& a, const Span& b) { return a.begin_ns < b.begin_ns; });
      next = sharing.begin();
      open.clear();
    }
    std::erase_if(open, [&](const Span& span) { return span.end_ns <= step.begin_ns; });
    for (; next != sharing.end() && next->begin_ns < step.end_ns; ++next) open.push_back(*next);
    breakdowns.push_back(share_out(open, step, times));
  }
  return breakdowns;
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

std::string to_string(const StepBreakdown& breakdown) {
  const auto line = [&](std::string_view name, double seconds) {
    const double percent = breakdown.step > 0 ? 100 * seconds / breakdown.step : 0;
    return fmt::format("{:<14}{:>10} {:>6.1f} %\n", name, format_seconds(seconds), percent);
  };
  std::string table;
  for (const BreakdownFigure& part : kBreakdownParts) {
    std::string name(part.name);
    std::replace(name.begin(), name.end(), '_', ' ');
    table += line(name, breakdown.*part.seconds);
  }
  table += line("step", breakdown.step);
  table += fmt::format("{:<14}{:>10}  (hidden behind the above)\n", "overlapped",
                       format_seconds(breakdown.overlapped_comm));
  return table;
}

}  // namespace lockstep::trace
