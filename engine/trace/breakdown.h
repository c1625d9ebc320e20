// Breakdown: computes from spans where the time of a training step goes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/trace/span.h"

namespace lockstep::trace {

// A set of times is a list of sorted, disjoint, non-empty half-open intervals in nanoseconds.
struct Interval {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;

  bool operator==(const Interval&) const = default;
};

using IntervalSet = std::vector<Interval>;

// The part of interval inside window; empty (begin >= end) if they do not meet.
Interval clip(Interval interval, Interval window);

// The set that the intervals cover together: overlapping and touching ones become one.
IntervalSet union_of(std::vector<Interval> intervals);

// The times that both sets cover.
IntervalSet intersection_of(const IntervalSet& a, const IntervalSet& b);

std::int64_t total_ns(const IntervalSet& set);

// The part of the set inside window.
IntervalSet part_inside(const IntervalSet& set, Interval window);

// The spans of one thread, cut into pieces that do not overlap: the parts of each span that contain
// no other span. Sorted by time; a piece is a copy of its span with another begin and end. Of spans
// that overlap without nesting, the one that began last counts.
std::vector<Span> innermost_pieces(std::vector<Span> spans);

// The pieces of this rank's work, without its steps: from its device's own spans if it has any,
// else from its threads'. A device's comm lane counts as a separate thread.
std::vector<Span> pieces_of_rank(std::span<const Span> spans, int rank);

// True if the device computes during this piece: on the compute lane, neither communicating nor
// waiting.
bool is_computing(const Span& piece);

// The times of the pieces that satisfy `chosen`.
template <typename Chosen>
IntervalSet times_of(const std::vector<Span>& pieces, Chosen chosen) {
  std::vector<Interval> times;
  for (const Span& piece : pieces) {
    if (chosen(piece)) times.push_back({piece.begin_ns, piece.end_ns});
  }
  return union_of(std::move(times));
}

// A step's breakdown is made from the spans of that step.
//
// The step is the span of category step. Its nine parts come from the spans of the thread that
// recorded the step: each instant belongs to the innermost span around it, without op spans (they
// belong to the phase around them). So a wait inside backward counts as wait, and not as backward;
// and the parts add up to the step's wall time, to the nanosecond.
//
//   exposed_comm      the thread is inside a span of category communication: it runs a blocking
//                     collective, or waits for an asynchronous one, and computes nothing
//   unattributed      the thread is inside no span: work without instrumentation
//   comm              beside the nine: this rank's comm lane is in use, by any thread
//   overlapped_comm   the part of comm during which the rank's device computes. It cost no time of
//                     its own
//
// A GPU works long after the thread that launched the work, so its steps are spans of its own
// (thread kDeviceThread). If a rank has such steps, they are broken down, by the spans of the same
// device without its comm lane. Then exposed_comm is the time for which the compute stream waits
// for communication, and unattributed the time for which it does nothing that has a name.

// All in seconds. Names and order are those of `breakdown_seconds` in the run file.
struct StepBreakdown {
  double data = 0;
  double copy = 0;
  double forward = 0;
  double backward = 0;
  double exposed_comm = 0;
  double optimizer = 0;
  double wait = 0;
  double host = 0;
  double unattributed = 0;

  double step = 0;  // the step's wall time; the nine parts above add up to it
  double comm = 0;
  double overlapped_comm = 0;
  std::int64_t sequence = kNoSequence;  // number of the step
  int rank = 0;
};

// A figure of StepBreakdown under its name in the run file.
struct BreakdownFigure {
  std::string_view name;
  double StepBreakdown::*seconds;
};
inline constexpr std::array<BreakdownFigure, 9> kBreakdownParts = {
    {{"data", &StepBreakdown::data},
     {"copy", &StepBreakdown::copy},
     {"forward", &StepBreakdown::forward},
     {"backward", &StepBreakdown::backward},
     {"exposed_comm", &StepBreakdown::exposed_comm},
     {"optimizer", &StepBreakdown::optimizer},
     {"wait", &StepBreakdown::wait},
     {"host", &StepBreakdown::host},
     {"unattributed", &StepBreakdown::unattributed}}};
inline constexpr std::array<BreakdownFigure, 3> kBreakdownTotals = {
    {{"step", &StepBreakdown::step},
     {"comm", &StepBreakdown::comm},
     {"overlapped_comm", &StepBreakdown::overlapped_comm}}};

// The breakdown of one step. REQUIRES: step.category is Category::step.
StepBreakdown step_breakdown(std::span<const Span> spans, const Span& step);

// The breakdowns of all steps of a rank, by time: of the steps that its GPU timed, if there are
// any.
std::vector<StepBreakdown> step_breakdowns(std::span<const Span> spans, int rank);

// The step of this rank whose wall time is the median of its steps (of an even number, the shorter
// of the middle two): a real step, so its parts add up. nullptr if the rank has none.
const Span* median_step_span(std::span<const Span> spans, int rank);

// The breakdown of that step. Empty if the rank has no step.
std::optional<StepBreakdown> median_step(std::span<const Span> spans, int rank);

// "412 ns", "12.3 us", "4.56 ms", "1.23 s".
std::string format_seconds(double seconds);

}  // namespace lockstep::trace
