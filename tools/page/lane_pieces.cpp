#include "tools/page/lane_pieces.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "engine/trace/breakdown.h"

namespace lockstep::tools::page {
namespace {

std::int64_t nanoseconds(double seconds) {
  return std::llround(1e9 * std::clamp(seconds, 0.0, 9e9));  // whatever the file says
}

// Communication of a predicted device may run on its copy lanes.
bool is_comm_lane(const TimelineEvent& event, LaneRules rules) {
  return event.lane.ends_with("comm") || (rules.has_own_lanes && event.lane != "compute");
}

bool is_computing(const TimelineEvent& event, bool has_gpu) {
  return event.lane == (has_gpu ? "GPU compute" : "compute") && event.category != "communication" &&
         event.category != "wait";
}

// Each thread's innermost pieces; what is of no thread, lane by lane.
std::vector<TimelineEvent> innermost(const std::vector<TimelineEvent>& spans, LaneRules rules) {
  std::map<std::pair<long long, std::string>, std::vector<trace::Span>> streams;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    trace::Span span;
    span.begin_ns = nanoseconds(spans[i].begin);
    span.end_ns = nanoseconds(spans[i].end);
    span.sequence = static_cast<std::int64_t>(i);
    const bool is_of_thread = spans[i].thread && !rules.has_own_lanes;
    streams[is_of_thread ? std::pair(*spans[i].thread, std::string())
                         : std::pair(-1LL, spans[i].lane)]
        .push_back(span);
  }
  std::vector<TimelineEvent> pieces;
  for (auto& [stream, list] : streams) {
    for (const trace::Span& piece : trace::innermost_pieces(std::move(list))) {
      pieces.push_back(spans[static_cast<std::size_t>(piece.sequence)]);
      pieces.back().begin = 1e-9 * static_cast<double>(piece.begin_ns);
      pieces.back().end = 1e-9 * static_cast<double>(piece.end_ns);
    }
  }
  return pieces;
}

void add_piece(std::vector<TimelineEvent>& pieces, const TimelineEvent& event,
               std::string_view category, std::int64_t begin_ns, std::int64_t end_ns) {
  if (begin_ns >= end_ns) return;
  pieces.push_back(event);
  pieces.back().category = category;
  pieces.back().begin = 1e-9 * static_cast<double>(begin_ns);
  pieces.back().end = 1e-9 * static_cast<double>(end_ns);
}

}  // namespace

std::vector<TimelineEvent> pieces_of(std::vector<TimelineEvent> spans, LaneRules rules) {
  if (!rules.has_threads && !rules.has_own_lanes) {
    for (TimelineEvent& span : spans) {
      if (is_comm_lane(span, rules)) span.category = kUnjudgedComm;
    }
    return spans;
  }
  bool has_gpu = false;
  for (const TimelineEvent& span : spans) has_gpu = has_gpu || span.lane == "GPU compute";
  const std::vector<TimelineEvent> all = innermost(spans, rules);
  std::vector<trace::Interval> computing;
  for (const TimelineEvent& piece : all) {
    if (is_computing(piece, has_gpu)) {
      computing.push_back({nanoseconds(piece.begin), nanoseconds(piece.end)});
    }
  }
  const trace::IntervalSet busy = trace::union_of(std::move(computing));
  std::vector<TimelineEvent> pieces;
  for (const TimelineEvent& piece : all) {
    if (!is_comm_lane(piece, rules) || piece.category != "communication") {
      pieces.push_back(piece);
      continue;
    }
    std::int64_t from_ns = nanoseconds(piece.begin);
    const std::int64_t end_ns = nanoseconds(piece.end);
    auto part = std::ranges::partition_point(
        busy, [&](const trace::Interval& interval) { return interval.end_ns <= from_ns; });
    for (; part != busy.end() && part->begin_ns < end_ns; ++part) {
      const std::int64_t hidden_end_ns = std::min(part->end_ns, end_ns);
      add_piece(pieces, piece, "communication", from_ns, part->begin_ns);
      add_piece(pieces, piece, kHiddenComm, std::max(part->begin_ns, from_ns), hidden_end_ns);
      from_ns = hidden_end_ns;
    }
    add_piece(pieces, piece, "communication", from_ns, end_ns);
  }
  return pieces;
}

}  // namespace lockstep::tools::page
