#include "tools/page/step_timeline.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/core/json_file.h"
#include "tools/page/lane_pieces.h"
#include "tools/report/json_integer.h"
#include "tools/report/predicted_trace.h"

namespace lockstep::tools::page {
namespace {

using Json = nlohmann::json;

using Event = TimelineEvent;

struct Events {
  std::vector<Event> spans;
  std::map<long long, std::string> process_names;
  std::map<long long, std::string> row_names;  // rows are numbered over all processes
};

class File {
 public:
  File(const std::filesystem::path& path, std::string_view operation) : file_(path, operation) {
    const Json& json = file_.json();
    const bool has_events =
        json.is_object() && json.contains("traceEvents") && json["traceEvents"].is_array();
    if (!has_events) refuse("this is no timeline: it has no traceEvents; give the file of --trace");
    std::size_t index = 0;
    for (const Json& event : json["traceEvents"]) add(event, index++);
  }

  const Events& events() const { return events_; }

  [[noreturn]] void refuse(std::string_view problem) const { file_.fail_at("", problem); }

 private:
  void add(const Json& event, std::size_t index) {
    try {
      const std::string phase = event.at("ph");
      if (phase == "M") {
        add_name(event);
      } else if (phase == "X") {
        add_span(event);
      }
    } catch (const std::exception&) {  // the JSON's, or that of integer()
      const std::string place = "traceEvents[" + std::to_string(index) + "]";
      file_.fail_at(place, place + " lacks what --trace writes: no timeline of Lockstep's");
    }
  }
  void add_name(const Json& event) {
    const std::string what = event.at("name");
    if (what == "process_name") {
      events_.process_names[integer<long long>(event.at("pid"))] =
          event.at("args").at("name").get<std::string>();
    } else if (what == "thread_name") {
      events_.row_names[integer<long long>(event.at("tid"))] =
          event.at("args").at("name").get<std::string>();
    }
  }
  void add_span(const Json& json) {
    Event event;
    read_integer(json, "pid", event.process);
    read_integer(json, "tid", event.row);
    event.begin = json.at("ts").get<double>() * 1e-6;
    event.end = event.begin + json.at("dur").get<double>() * 1e-6;
    event.category = json.at("cat");
    event.name = json.at("name");
    const auto args = json.find("args");
    if (args != json.end() && args->contains("sequence")) {
      event.sequence = integer<long long>(args->at("sequence"));
    }
    if (args != json.end() && args->contains("thread")) {
      event.thread = integer<long long>(args->at("thread"));
    }
    events_.spans.push_back(std::move(event));
  }

  JsonFile file_;
  Events events_;
};

// Of the first process: the lower median by length.
const Event& median_step(const File& file) {
  std::vector<const Event*> steps;
  for (const Event& event : file.events().spans) {
    if (event.category != "step" || (!event.sequence && event.name != kPredictedStep)) continue;
    if (!steps.empty() && event.process < steps[0]->process) steps.clear();
    if (steps.empty() || event.process == steps[0]->process) steps.push_back(&event);
  }
  if (steps.empty()) file.refuse("this is a timeline without training steps");
  const auto seconds = [](const Event* event) { return event->end - event->begin; };
  std::ranges::stable_sort(steps, {}, seconds);
  return *steps[(steps.size() - 1) / 2];
}

// "compute ops, level 2" is of the lane "compute".
std::string lane_of(const std::string& row) {
  std::string lane = row.substr(0, row.find(", level"));
  if (lane.ends_with(" ops")) lane.resize(lane.size() - 4);
  return lane;
}

// All that happened in the step, clipped to [begin, end) of all ranks, in the order of rows.
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
  // By row: those of one lane come in the order of their levels.
  std::ranges::stable_sort(inside, {},
                           [](const Event& event) { return std::pair(event.process, event.row); });
  return inside;
}

RankLanes lanes_of(const std::vector<Event>& spans, const std::string& name, LaneRules rules) {
  RankLanes rank{name, {}};
  std::map<std::string_view, std::size_t> places;
  for (const Event& span : spans) {
    if (places.try_emplace(span.lane, places.size()).second) rank.lanes.push_back({span.lane, {}});
  }
  for (const Event& piece : pieces_of(spans, rules)) {
    rank.lanes[places.at(piece.lane)].spans.push_back(
        {piece.begin, piece.end, piece.category, piece.name});
  }
  return rank;
}

}  // namespace

StepTimeline read_step_timeline(const std::filesystem::path& path, std::string_view operation) {
  const File file(path, operation);
  const Events& events = file.events();
  const Event& chosen = median_step(file);
  double begin = chosen.begin, end = chosen.end;
  std::map<long long, Event> steps;  // of each process that has steps of its own
  for (const Event& event : events.spans) {
    if (event.category != "step" || event.sequence != chosen.sequence) continue;
    steps[event.process] = event;
    begin = std::min(begin, event.begin);
    end = std::max(end, event.end);
  }
  if (!(end > begin) || !std::isfinite(end - begin)) {
    file.refuse("the timeline has steps without a duration");
  }
  const std::vector<Event> inside = events_inside(events, steps, begin, end);
  StepTimeline timeline{chosen.sequence.value_or(0), end - begin};
  timeline.is_predicted = chosen.name == kPredictedStep;
  // A GPU's spans are of no thread.
  const LaneRules rules{
      std::ranges::any_of(inside, [](const Event& e) { return e.thread.has_value(); }),
      timeline.is_predicted};
  timeline.is_judged = rules.has_threads || rules.has_own_lanes;
  for (auto next = inside.begin(); next != inside.end();) {
    const long long process = next->process;
    const auto last =
        std::find_if(next, inside.end(), [&](const Event& e) { return e.process != process; });
    const auto named = events.process_names.find(process);
    timeline.ranks.push_back(lanes_of(
        {next, last},
        named == events.process_names.end() ? "rank " + std::to_string(process) : named->second,
        rules));
    next = last;
  }
  return timeline;
}

}  // namespace lockstep::tools::page
