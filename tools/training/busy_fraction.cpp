#include "tools/training/busy_fraction.h"

#include <algorithm>
#include <vector>

#include "engine/trace/intervals.h"

namespace lockstep::tools {
namespace {

using trace::Category;
using trace::Interval;

bool is_idle(Category category) {
  return category == Category::wait || category == Category::communication;
}

// Whether a GPU timed its work itself: then the host's spans only say when it was given the work.
bool has_device_spans(const trace::Recording& recording, int track) {
  return std::any_of(recording.spans.begin(), recording.spans.end(), [&](const trace::Span& span) {
    return span.rank == track && span.thread == trace::kDeviceThread;
  });
}

}  // namespace

double busy_fraction(const trace::Recording& recording, int track) {
  std::vector<Interval> steps;
  std::vector<Interval> computing;
  std::vector<Interval> idle;
  const bool is_timed_by_device = has_device_spans(recording, track);
  for (const trace::Span& span : recording.spans) {
    const Interval interval{span.begin_ns, span.end_ns};
    if (is_timed_by_device && span.thread != trace::kDeviceThread) continue;
    if (span.category == Category::step) {
      steps.push_back(interval);  // of any rank: they step together
    } else if (span.rank == track && is_idle(span.category)) {
      // What a GPU's comm lane does, it does beside computing.
      const bool stalls =
          is_timed_by_device ? span.lane != trace::Lane::comm : span.lane == trace::Lane::host;
      if (stalls) idle.push_back(interval);
    } else if (span.rank == track && span.lane == trace::Lane::compute) {
      computing.push_back(interval);
    }
  }
  const trace::IntervalSet stepping = trace::union_of(std::move(steps));
  if (stepping.empty()) return 0;
  const trace::IntervalSet busy =
      trace::intersection_of(trace::union_of(std::move(computing)), stepping);
  const std::int64_t waited =
      trace::total_ns(trace::intersection_of(busy, trace::union_of(std::move(idle))));
  return static_cast<double>(trace::total_ns(busy) - waited) /
         static_cast<double>(trace::total_ns(stepping));
}

void take_times(const trace::Recording& recording, const std::vector<int>& tracks,
                TrainingResult& result) {
  if (recording.spans.empty()) return;
  result.breakdown = trace::median_step(recording.spans, tracks.front());
  std::vector<trace::StepBreakdown> all_steps;
  for (const int track : tracks) {
    result.busy_fraction.push_back(busy_fraction(recording, track));
    const auto steps = trace::step_breakdowns(recording.spans, track);
    result.comm_overlap.push_back(trace::comm_overlap(steps));
    all_steps.insert(all_steps.end(), steps.begin(), steps.end());
  }
  result.step_statistics = trace::step_statistics(all_steps);
}

}  // namespace lockstep::tools
