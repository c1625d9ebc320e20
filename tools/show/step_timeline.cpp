#include "tools/show/step_timeline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "engine/core/json_file.h"
#include "engine/trace/breakdown.h"
#include "tools/run/trace_file.h"

namespace lockstep::tools::page {
namespace {

using Json = nlohmann::ordered_json;
using trace::Category;
using trace::Interval;
using trace::Lane;
using trace::Span;

// A row of the drawing: the lane of its spans, and whether a GPU timed them itself.
struct Row {
  Lane lane = Lane::host;
  bool is_on_device = false;
};

struct Events {
  std::vector<Span> spans;     // without operations
  std::vector<Span> launches;  // gradient buckets' launches, in the launching threads
  std::map<int, std::string> rank_names;
};

// json.get() would also convert other numbers, and one that does not fit is undefined behaviour.
std::int64_t integer(const nlohmann::json& json) {
  if (!json.is_number_integer()) throw std::range_error("expected an integer");
  return json.get<std::int64_t>();
}

std::int64_t nanoseconds(const nlohmann::json& microseconds) {
  constexpr double kMost = 1e18;
  return std::llround(std::clamp(1e3 * microseconds.get<double>(), -kMost, kMost));
}

// The value of an enumeration that is written as this text.
template <typename Enum>
Enum value_of(std::string_view text, Enum last) {
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    if (trace::to_string(static_cast<Enum>(i)) == text) return static_cast<Enum>(i);
  }
  throw std::range_error("expected a word that --trace writes");
}

// "compute ops, level 2" and "GPU compute" are rows of the lane "compute"; "steps" has none.
Row read_row(std::string name) {
  name.resize(std::min(name.find(", level"), name.size()));
  if (name.ends_with(" ops")) name.resize(name.size() - 4);
  const bool is_on_device = name.starts_with("GPU ");
  if (is_on_device) name.erase(0, 4);
  return {name == "steps" ? Lane::host : value_of(name, Lane::host), is_on_device};
}

Span read_span(const nlohmann::json& json, const std::map<std::int64_t, Row>& rows) {
  Span span;
  span.rank = static_cast<int>(integer(json.at("pid")));
  span.begin_ns = nanoseconds(json.at("ts"));
  span.end_ns = span.begin_ns + nanoseconds(json.at("dur"));
  span.category = value_of(json.at("cat").get<std::string>(), Category::op);
  span.name = trace::intern(json.at("name").get<std::string>());
  const std::int64_t row = integer(json.at("tid"));
  const bool is_step = span.category == Category::step;
  const Row found = is_step && !rows.contains(row) ? Row() : rows.at(row);
  span.lane = found.lane;
  const nlohmann::json args = json.value("args", nlohmann::json::object());
  if (args.contains("sequence")) span.sequence = integer(args.at("sequence"));
  // Without a thread, work of different lanes may have happened at the same time.
  span.thread = 1'000'000 + static_cast<std::uint32_t>(found.lane);
  if (found.is_on_device) span.thread = trace::kDeviceThread;
  if (args.contains("thread")) span.thread = static_cast<std::uint32_t>(integer(args["thread"]));
  return span;
}

void add_event(const nlohmann::json& event, std::map<std::int64_t, Row>& rows, Events& events) {
  const std::string phase = event.at("ph");
  const std::string name = event.at("name");
  if (phase == "M" && name == "process_name") {
    events.rank_names[static_cast<int>(integer(event.at("pid")))] = event.at("args").at("name");
  } else if (phase == "M" && name == "thread_name") {
    rows[integer(event.at("tid"))] = read_row(event.at("args").at("name"));
  } else if (phase == "X") {
    const Span span = read_span(event, rows);
    if (name == "launch bucket") events.launches.push_back(span);
    const bool has_number = span.sequence != trace::kNoSequence || name == kPredictedStep;
    const bool is_used =
        span.category == Category::step ? has_number : span.category != Category::op;
    if (is_used) events.spans.push_back(span);
  }
}

Events read_events(const JsonFile& file) {
  const nlohmann::json& json = file.json();
  if (!json.is_object() || !json.contains("traceEvents") || !json["traceEvents"].is_array()) {
    file.fail_at("",
                 "this is not a timeline: it has no traceEvents; give a file that --trace wrote");
  }
  Events events;
  std::map<std::int64_t, Row> rows;  // keyed by tid, which counts over all ranks
  std::size_t index = 0;
  for (const nlohmann::json& event : json["traceEvents"]) {
    try {
      add_event(event, rows, events);
    } catch (const std::exception&) {  // from the JSON library, or from the functions above
      const std::string place = "traceEvents[" + std::to_string(index) + "]";
      file.fail_at(place, place + " lacks what --trace writes: no timeline of Lockstep's");
    }
    ++index;
  }
  return events;
}

std::set<int> ranks_of(const std::vector<Span>& spans) {
  std::set<int> ranks;
  for (const Span& span : spans) ranks.insert(span.rank);
  return ranks;
}

// From the first begin to the last end of the step with this number, among the spans to keep. It
// ends before it begins if there is none.
template <typename Keep>
Interval step_time(const std::vector<Span>& spans, std::int64_t sequence, const Keep& keep) {
  Interval time{std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()};
  for (const Span& span : spans) {
    if (span.category != Category::step || span.sequence != sequence || !keep(span)) continue;
    time = {std::min(time.begin_ns, span.begin_ns), std::max(time.end_ns, span.end_ns)};
  }
  return time;
}

// Returns the spans of the rank during its own step, clipped to `all`, whose begin becomes 0.
std::vector<Span> spans_inside(const std::vector<Span>& spans, int rank, Interval own,
                               Interval all) {
  std::vector<Span> inside;
  for (Span span : spans) {
    if (span.rank != rank || span.category == Category::step || span.end_ns <= own.begin_ns ||
        span.begin_ns >= own.end_ns || span.end_ns <= span.begin_ns) {
      continue;
    }
    const Interval part = trace::clip({span.begin_ns, span.end_ns}, all);
    span.begin_ns = part.begin_ns - all.begin_ns;
    span.end_ns = part.end_ns - all.begin_ns;
    inside.push_back(span);
  }
  std::ranges::stable_sort(inside, {}, &Span::begin_ns);
  return inside;
}

// Predicted communication may be on a copy lane.
bool is_comm_lane(const Span& span, bool is_predicted) {
  return span.lane == Lane::comm || (is_predicted && span.lane != Lane::compute);
}

bool is_reduction(const Span& span, bool is_predicted) {
  const std::string_view name = span.name;
  return (name.starts_with("all_reduce") || name.starts_with("all-reduce")) &&
         is_comm_lane(span, is_predicted);
}

// Keyed by the number of a bucket's all-reduce, which is the same in the lanes of its thread and of
// its device: the number of the bucket, from 0 in the step that launched it. Other all-reduces,
// such as those of a shared batch norm, ended before a bucket was launched or have higher numbers.
std::map<std::int64_t, std::int64_t> bucket_numbers(const Events& events, int rank) {
  std::map<std::int64_t, std::int64_t> end_of_call;  // as its thread saw it
  std::set<std::int64_t> steps;                      // when they begin
  for (const Span& span : events.spans) {
    if (span.rank != rank || span.thread == trace::kDeviceThread) continue;
    if (span.category == Category::step) steps.insert(span.begin_ns);
    if (span.sequence != trace::kNoSequence && is_reduction(span, false)) {
      end_of_call[span.sequence] = span.end_ns;
    }
  }
  std::set<std::int64_t> launches;
  for (const Span& span : events.launches) {
    if (span.rank == rank) launches.insert(span.begin_ns);
  }
  std::map<std::int64_t, std::int64_t> numbers;
  auto call = end_of_call.begin();
  auto step = steps.begin();
  std::int64_t number = 0;
  for (const std::int64_t launch_ns : launches) {
    for (; step != steps.end() && *step <= launch_ns; ++step) number = 0;
    while (call != end_of_call.end() && call->second <= launch_ns) ++call;
    if (call == end_of_call.end()) break;
    numbers[call++->first] = number++;
  }
  return numbers;
}

// Makes each span's sequence the number of its bucket; -1 for what is no bucket's all-reduce. A
// predicted device reduces buckets alone, one after another.
void number_buckets(std::vector<Span>& spans, const std::map<std::int64_t, std::int64_t>& numbers,
                    bool is_predicted) {
  std::map<Lane, std::int64_t> next;
  for (Span& span : spans) {
    const auto found = numbers.find(span.sequence);
    span.sequence = !is_reduction(span, is_predicted) ? -1
                    : is_predicted                    ? next[span.lane]++
                    : found == numbers.end()          ? -1
                                                      : found->second;
  }
}

void add_piece(const Span& piece, std::string_view category, std::int64_t begin_ns,
               std::int64_t end_ns, Json& spans) {
  if (begin_ns >= end_ns) return;
  spans.push_back({1e-9 * static_cast<double>(begin_ns), 1e-9 * static_cast<double>(end_ns),
                   category, piece.name, piece.sequence});
}

// Cuts a piece of communication into exposed parts and parts hidden behind computation.
void add_comm(const Span& piece, const trace::IntervalSet& computing, Json& spans) {
  std::int64_t from_ns = piece.begin_ns;
  for (const Interval& hidden : trace::part_inside(computing, {piece.begin_ns, piece.end_ns})) {
    add_piece(piece, "communication", from_ns, hidden.begin_ns, spans);
    add_piece(piece, kHiddenComm, hidden.begin_ns, hidden.end_ns, spans);
    from_ns = hidden.end_ns;
  }
  add_piece(piece, "communication", from_ns, piece.end_ns, spans);
}

// REQUIRES: spans are one rank's, by their begin.
Json lanes_of(std::vector<Span> spans, const std::map<std::int64_t, std::int64_t>& numbers,
              bool is_predicted) {
  number_buckets(spans, numbers, is_predicted);
  if (is_predicted) {  // a device's lanes run at the same time
    for (Span& span : spans) span.thread = static_cast<std::uint32_t>(span.lane);
  }
  const std::vector<Span> pieces = trace::pieces_of_rank(spans, spans[0].rank);
  const trace::IntervalSet computing = trace::times_of(pieces, trace::is_computing);
  Json lanes = Json::array();
  for (const Lane lane : {Lane::compute, Lane::comm, Lane::copy, Lane::host}) {
    Json drawn = Json::array();
    for (const Span& piece : pieces) {
      if (piece.lane != lane) continue;
      if (piece.category == Category::communication && is_comm_lane(piece, is_predicted)) {
        add_comm(piece, computing, drawn);
      } else {
        add_piece(piece, trace::to_string(piece.category), piece.begin_ns, piece.end_ns, drawn);
      }
    }
    if (!drawn.empty()) lanes.push_back({{"name", trace::to_string(lane)}, {"spans", drawn}});
  }
  return lanes;
}

}  // namespace

Json read_step_timeline(const std::filesystem::path& path, std::string_view operation) {
  const JsonFile file(path, operation);
  const Events events = read_events(file);
  const std::set<int> ranks = ranks_of(events.spans);
  const Span* chosen = nullptr;
  for (const int rank : ranks) {
    if (chosen == nullptr) chosen = trace::median_step_span(events.spans, rank);
  }
  if (chosen == nullptr) file.fail_at("", "this is a timeline without training steps");
  const Interval all = step_time(events.spans, chosen->sequence, [](const Span&) { return true; });
  if (all.end_ns <= all.begin_ns) {
    file.fail_at("", "the timeline has steps without a duration");
  }
  const bool is_predicted = std::string_view(chosen->name) == kPredictedStep;
  Json timeline{{"step", std::max<std::int64_t>(chosen->sequence, 0)},
                {"seconds", 1e-9 * static_cast<double>(all.end_ns - all.begin_ns)},
                {"own_seconds", 1e-9 * static_cast<double>(chosen->end_ns - chosen->begin_ns)},
                {"predicted", is_predicted},
                {"ranks", Json::array()}};
  for (const int rank : ranks) {
    Interval own = step_time(events.spans, chosen->sequence,
                             [&](const Span& span) { return span.rank == rank; });
    if (own.begin_ns > own.end_ns) own = all;  // it has no steps of its own
    const std::vector<Span> inside = spans_inside(events.spans, rank, own, all);
    if (inside.empty()) continue;
    const auto named = events.rank_names.find(rank);
    const std::string name =
        named == events.rank_names.end() ? "rank " + std::to_string(rank) : named->second;
    timeline["ranks"].push_back(
        {{"name", name}, {"lanes", lanes_of(inside, bucket_numbers(events, rank), is_predicted)}});
  }
  return timeline;
}

}  // namespace lockstep::tools::page
