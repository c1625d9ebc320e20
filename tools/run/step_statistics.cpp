#include "tools/run/step_statistics.h"

namespace lockstep::tools {
namespace {

// The smallest value that at least `percent` of the values do not exceed. REQUIRES: values.
double quantile(std::vector<double> values, std::size_t percent) {
  const std::size_t index = (values.size() * percent + 99) / 100 - 1;
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(index);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

using trace::Category;
using trace::Interval;
using trace::IntervalSet;
using trace::Span;

bool is_idle(Category category) {
  return category == Category::wait || category == Category::communication;
}

Interval time_of(const Span& span) {
  return {span.begin_ns, span.end_ns};
}

// True if a GPU timed its work itself; the host's spans then only say when work was launched.
bool is_timed_by_device(const trace::Recording& recording, int track) {
  return std::any_of(recording.spans.begin(), recording.spans.end(), [&](const Span& span) {
    return span.rank == track && span.thread == trace::kDeviceThread;
  });
}

// The steps of any rank, because all ranks step together. On GPUs only their own timings count.
template <typename Keep>
IntervalSet steps_of(const trace::Recording& recording, const Keep& keep) {
  std::vector<Interval> steps;
  for (const Span& span : recording.spans) {
    if (span.category == Category::step && keep(span)) steps.push_back(time_of(span));
  }
  return trace::union_of(std::move(steps));
}

// A GPU's comm lane is left out, because it runs at the same time as computation.
double device_nanoseconds(const trace::Recording& recording, int track, const IntervalSet& steps) {
  std::vector<Interval> computing;
  std::vector<Interval> idle;
  for (const Span& span : recording.spans) {
    if (span.rank != track || span.thread != trace::kDeviceThread ||
        span.category == Category::step || span.lane == trace::Lane::comm) {
      continue;
    }
    if (is_idle(span.category)) {
      idle.push_back(time_of(span));
    } else if (span.lane == trace::Lane::compute) {
      computing.push_back(time_of(span));
    }
  }
  const IntervalSet busy = trace::intersection_of(trace::union_of(std::move(computing)), steps);
  const IntervalSet waited = trace::intersection_of(busy, trace::union_of(std::move(idle)));
  return static_cast<double>(trace::total_ns(busy) - trace::total_ns(waited));
}

// The part of the interval that the set covers.
std::int64_t overlap_ns(Interval interval, const IntervalSet& set) {
  auto part = std::partition_point(set.begin(), set.end(),
                                   [&](Interval one) { return one.end_ns <= interval.begin_ns; });
  std::int64_t total = 0;
  for (; part != set.end() && part->begin_ns < interval.end_ns; ++part) {
    const Interval common = trace::clip(*part, interval);
    total += common.end_ns - common.begin_ns;
  }
  return total;
}

// CPU time of the outermost compute spans, minus that of the waits inside them. Of a span that is
// partly outside the steps, only the part inside counts.
double cpu_nanoseconds(const trace::Recording& recording, int track, const IntervalSet& steps) {
  double total = 0;
  for (const Span& span : recording.spans) {
    if (span.rank != track || span.cpu_ns == trace::kNotMeasured || span.begin_ns >= span.end_ns) {
      continue;
    }
    const double share = static_cast<double>(overlap_ns(time_of(span), steps)) /
                         static_cast<double>(span.end_ns - span.begin_ns);
    total += (is_idle(span.category) ? -share : share) * static_cast<double>(span.cpu_ns);
  }
  return total;
}

}  // namespace

StepStatistics step_statistics(const std::vector<trace::StepBreakdown>& steps) {
  StepStatistics statistics;
  statistics.num_steps = steps.size();
  if (steps.empty()) return statistics;
  const auto take = [&](const trace::BreakdownFigure& figure) {
    std::vector<double> values;
    for (const trace::StepBreakdown& step : steps) values.push_back(step.*figure.seconds);
    statistics.median_seconds.*figure.seconds = quantile(values, 50);
    statistics.p90_seconds.*figure.seconds = quantile(values, 90);
  };
  for (const trace::BreakdownFigure& part : trace::kBreakdownParts) take(part);
  for (const trace::BreakdownFigure& total : trace::kBreakdownTotals) take(total);
  return statistics;
}

std::optional<double> comm_overlap(const std::vector<trace::StepBreakdown>& steps) {
  double comm = 0;
  double overlapped = 0;
  for (const trace::StepBreakdown& step : steps) {
    comm += step.comm;
    overlapped += step.overlapped_comm;
  }
  return comm > 0 ? std::optional(overlapped / comm) : std::nullopt;
}

double busy_fraction(const trace::Recording& recording, int track) {
  const bool by_device = is_timed_by_device(recording, track);
  const IntervalSet steps = steps_of(recording, [&](const Span& span) {
    return !by_device || span.thread == trace::kDeviceThread;
  });
  if (steps.empty()) return 0;
  const double busy = by_device ? device_nanoseconds(recording, track, steps)
                                : cpu_nanoseconds(recording, track, steps);
  // The two clocks differ a little.
  return std::clamp(busy / static_cast<double>(trace::total_ns(steps)), 0.0, 1.0);
}

}  // namespace lockstep::tools
