#include "tools/page/step_timeline.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <utility>

#include "engine/core/json_file.h"
#include "engine/trace/breakdown.h"
#include "tools/report/trace_file.h"

namespace lockstep::tools::page {
namespace {

// A span as it stands in the file.
struct Event {
  long long process = 0;
  long long row = 0;          // its tid: a lane's row
  double begin = 0, end = 0;  // seconds
  std::string category, name, lane;
  std::optional<long long> sequence;
  std::optional<long long> thread;  // absent: a GPU did it, or the file does not say
  int bucket = -1;
};

struct Events {
  std::vector<Event> spans;
  std::map<long long, std::string> process_names;
  std::map<long long, std::string> row_names;  // rows are numbered over all processes
};

// json.get() would also convert other numbers, and one that does not fit is undefined behaviour.
long long integer(const nlohmann::json& json) {
  if (!json.is_number_integer()) throw std::range_error("expected an integer");
  if (json.is_number_unsigned() && !std::in_range<long long>(json.get<std::uint64_t>())) {
    throw std::range_error("expected an integer of 64 bits");
  }
  return json.get<long long>();
}

Event read_span(const nlohmann::json& json) {
  Event event;
  event.process = integer(json.at("pid"));
  event.row = integer(json.at("tid"));
  event.begin = json.at("ts").get<double>() * 1e-6;
  event.end = event.begin + json.at("dur").get<double>() * 1e-6;
  event.category = json.at("cat");
  event.name = json.at("name");
  const auto args = json.find("args");
  if (args == json.end()) return event;
  if (args->contains("sequence")) event.sequence = integer(args->at("sequence"));
  if (args->contains("thread")) event.thread = integer(args->at("thread"));
  return event;
}

void add_event(const nlohmann::json& event, Events& events) {
  const std::string phase = event.at("ph");
  if (phase == "X") events.spans.push_back(read_span(event));
  if (phase != "M") return;
  const std::string what = event.at("name");
  if (what == "process_name") {
    events.process_names[integer(event.at("pid"))] = event.at("args").at("name").get<std::string>();
  } else if (what == "thread_name") {
    events.row_names[integer(event.at("tid"))] = event.at("args").at("name").get<std::string>();
  }
}

Events read_events(const JsonFile& file) {
  const nlohmann::json& json = file.json();
  if (!json.is_object() || !json.contains("traceEvents") || !json["traceEvents"].is_array()) {
    file.fail_at("", "this is no timeline: it has no traceEvents; give the file of --trace");
  }
  Events events;
  std::size_t index = 0;
  for (const nlohmann::json& event : json["traceEvents"]) {
    try {
      add_event(event, events);
    } catch (const std::exception&) {  // from the JSON library, or from integer()
      const std::string place = "traceEvents[" + std::to_string(index) + "]";
      file.fail_at(place, place + " lacks what --trace writes: no timeline of Lockstep's");
    }
    ++index;
  }
  return events;
}

// The lower median by length of the first process's steps; nullptr if it has none.
const Event* median_step(const Events& events) {
  std::vector<const Event*> steps;
  for (const Event& event : events.spans) {
    if (event.category != "step" || (!event.sequence && event.name != kPredictedStep)) continue;
    if (!steps.empty() && event.process < steps[0]->process) steps.clear();
    if (steps.empty() || event.process == steps[0]->process) steps.push_back(&event);
  }
  std::ranges::stable_sort(steps, {}, [](const Event* step) { return step->end - step->begin; });
  return steps.empty() ? nullptr : steps[(steps.size() - 1) / 2];
}

// "compute ops, level 2" is a row of the lane "compute".
std::string lane_of(const std::string& row) {
  std::string lane = row.substr(0, row.find(", level"));
  if (lane.ends_with(" ops")) lane.resize(lane.size() - 4);
  return lane;
}

// Everything that happened in the step, clipped to [begin, end) of all ranks, in the order of rows.
std::vector<Event> events_inside(const Events& events, const std::map<long long, Event>& steps,
                                 double begin, double end) {
  std::vector<Event> inside;
  for (const Event& event : events.spans) {
    if (event.category == "step" || event.category == "op" || event.end <= event.begin) continue;
    const auto own = steps.find(event.process);
    const double first = own == steps.end() ? begin : own->second.begin;
    const double last = own == steps.end() ? end : own->second.end;
    if (event.end <= first || event.begin >= last) continue;
    Event part = event;
    const auto named = events.row_names.find(event.row);
    if (named != events.row_names.end()) part.lane = lane_of(named->second);
    part.begin = std::max(event.begin, begin) - begin;
    part.end = std::min(event.end, end) - begin;
    inside.push_back(std::move(part));
  }
  std::ranges::stable_sort(inside, {},
                           [](const Event& event) { return std::pair(event.process, event.row); });
  return inside;
}

// The lanes of a predicted device run at the same time, and its communication may be on its copy
// lanes.
enum class Kind { recorded, predicted };

bool is_comm(const Event& event, Kind kind) {
  return event.lane.ends_with("comm") || (kind == Kind::predicted && event.lane != "compute");
}

// DDP reduces its buckets one after another, so the k-th all-reduce of a lane is bucket k.
void number_buckets(std::vector<Event>& spans, Kind kind) {
  std::map<std::string_view, std::vector<Event*>> reductions;
  for (Event& span : spans) {
    const bool is_reduction =
        span.name.starts_with("all_reduce") || span.name.starts_with("all-reduce");
    if (is_reduction && is_comm(span, kind)) reductions[span.lane].push_back(&span);
  }
  for (auto& [lane, list] : reductions) {
    std::ranges::stable_sort(list, {}, &Event::begin);
    for (std::size_t i = 0; i < list.size(); ++i) list[i]->bucket = static_cast<int>(i);
  }
}

std::int64_t nanoseconds(double seconds) {
  return std::llround(1e9 * std::clamp(seconds, 0.0, 9e9));  // clamps absurd times in the file
}

Event piece_of(Event event, std::int64_t begin_ns, std::int64_t end_ns) {
  event.begin = 1e-9 * static_cast<double>(begin_ns);
  event.end = 1e-9 * static_cast<double>(end_ns);
  return event;
}

// The innermost pieces of each thread; pieces that belong to no thread are taken lane by lane.
std::vector<Event> innermost(const std::vector<Event>& spans, Kind kind) {
  std::map<std::pair<long long, std::string>, std::vector<trace::Span>> streams;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    trace::Span span;
    span.begin_ns = nanoseconds(spans[i].begin);
    span.end_ns = nanoseconds(spans[i].end);
    span.sequence = static_cast<std::int64_t>(i);
    const bool has_thread = spans[i].thread && kind == Kind::recorded;
    streams[has_thread ? std::pair(*spans[i].thread, std::string())
                       : std::pair(-1LL, spans[i].lane)]
        .push_back(span);
  }
  std::vector<Event> pieces;
  for (auto& [stream, list] : streams) {
    for (const trace::Span& piece : trace::innermost_pieces(std::move(list))) {
      pieces.push_back(
          piece_of(spans[static_cast<std::size_t>(piece.sequence)], piece.begin_ns, piece.end_ns));
    }
  }
  return pieces;
}

trace::IntervalSet computing_time(const std::vector<Event>& pieces) {
  const bool has_gpu = std::ranges::count(pieces, "GPU compute", &Event::lane) > 0;
  std::vector<trace::Interval> computing;
  for (const Event& piece : pieces) {
    if (piece.lane != (has_gpu ? "GPU compute" : "compute") || piece.category == "communication" ||
        piece.category == "wait") {
      continue;
    }
    computing.push_back({nanoseconds(piece.begin), nanoseconds(piece.end)});
  }
  return trace::union_of(std::move(computing));
}

// Cuts a piece of communication into exposed parts and parts hidden behind computation.
void add_judged(const Event& piece, const trace::IntervalSet& computing,
                std::vector<Event>& pieces) {
  std::int64_t from_ns = nanoseconds(piece.begin);
  const std::int64_t end_ns = nanoseconds(piece.end);
  const auto add = [&](std::string_view category, std::int64_t begin_ns, std::int64_t last_ns) {
    if (begin_ns >= last_ns) return;
    pieces.push_back(piece_of(piece, begin_ns, last_ns));
    pieces.back().category = category;
  };
  auto part = std::ranges::partition_point(
      computing, [&](const trace::Interval& interval) { return interval.end_ns <= from_ns; });
  for (; part != computing.end() && part->begin_ns < end_ns; ++part) {
    const std::int64_t hidden_end_ns = std::min(part->end_ns, end_ns);
    add("communication", from_ns, part->begin_ns);
    add(kHiddenComm, std::max(part->begin_ns, from_ns), hidden_end_ns);
    from_ns = hidden_end_ns;
  }
  add("communication", from_ns, end_ns);
}

std::vector<Event> pieces_of(std::vector<Event> spans, Kind kind) {
  number_buckets(spans, kind);
  const std::vector<Event> all = innermost(spans, kind);
  const trace::IntervalSet computing = computing_time(all);
  std::vector<Event> pieces;
  for (const Event& piece : all) {
    if (is_comm(piece, kind) && piece.category == "communication") {
      add_judged(piece, computing, pieces);
    } else {
      pieces.push_back(piece);
    }
  }
  return pieces;
}

// REQUIRES: spans are one rank's, in the order of rows.
RankLanes lanes_of(const std::vector<Event>& spans, const std::string& name, Kind kind,
                   double seconds) {
  RankLanes rank{name, {}};
  std::map<std::string_view, std::size_t> places;
  for (const Event& span : spans) {
    if (places.try_emplace(span.lane, places.size()).second) rank.lanes.push_back({span.lane, {}});
  }
  for (const Event& piece : pieces_of(spans, kind)) {
    // Pieces have whole nanoseconds, so the last one may end after the step.
    rank.lanes[places.at(piece.lane)].spans.push_back({std::min(piece.begin, seconds),
                                                       std::min(piece.end, seconds), piece.category,
                                                       piece.name, piece.bucket});
  }
  return rank;
}

}  // namespace

StepTimeline read_step_timeline(const std::filesystem::path& path, std::string_view operation) {
  const JsonFile file(path, operation);
  const Events events = read_events(file);
  const Event* const chosen = median_step(events);
  if (chosen == nullptr) file.fail_at("", "this is a timeline without training steps");
  double begin = chosen->begin, end = chosen->end;
  std::map<long long, Event> steps;  // for each process that has steps of its own
  for (const Event& event : events.spans) {
    if (event.category != "step" || event.sequence != chosen->sequence) continue;
    steps[event.process] = event;
    begin = std::min(begin, event.begin);
    end = std::max(end, event.end);
  }
  if (!(end > begin) || !std::isfinite(end - begin)) {
    file.fail_at("", "the timeline has steps without a duration");
  }
  const std::vector<Event> inside = events_inside(events, steps, begin, end);
  StepTimeline timeline{chosen->sequence.value_or(0), end - begin};
  timeline.is_predicted = chosen->name == kPredictedStep;
  const Kind kind = timeline.is_predicted ? Kind::predicted : Kind::recorded;
  for (auto next = inside.begin(); next != inside.end();) {
    const long long process = next->process;
    const auto last =
        std::find_if(next, inside.end(), [&](const Event& e) { return e.process != process; });
    const auto named = events.process_names.find(process);
    const std::string name =
        named == events.process_names.end() ? "rank " + std::to_string(process) : named->second;
    timeline.ranks.push_back(lanes_of({next, last}, name, kind, timeline.seconds));
    next = last;
  }
  return timeline;
}

}  // namespace lockstep::tools::page
