#include "tools/watch/page.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include <fmt/format.h>

#include "engine/core/error.h"
#include "engine/trace/breakdown.h"
#include "tools/text/html.h"
#include "tools/watch/page_files.h"

namespace lockstep::watch {
namespace {

using Json = nlohmann::ordered_json;
using Kind = Event::Kind;

// Short enough for a page: three digits.
double rounded(double value) {
  return std::strtod(fmt::format("{:.3g}", value).c_str(), nullptr);
}

double microseconds(double value) {
  return std::round(10 * value) / 10;
}

Json numbers(const std::vector<float>& values) {
  Json json = Json::array();
  for (const float value : values) {
    json.push_back(std::isfinite(value) ? Json(rounded(value)) : Json(nullptr));
  }
  return json;
}

// The latest collective of the story that gathered this shard on the rank.
int gathered_before(const StepRecording& recording, const Story& story, const Event& freed) {
  int found = -1;
  for (const Event& event : recording.ranks.at(freed.rank).events) {
    if (&event == &freed) break;
    if (event.kind != Kind::call || event.memory != freed.memory) continue;
    for (std::size_t c = 0; c < story.collectives.size(); ++c) {
      if (story.collectives[c].sequence == event.number) found = static_cast<int>(c);
    }
  }
  return found;
}

// An event of a moment, in the order that page.js knows for each kind.
Json event_json(const StepRecording& recording, const Story& story, const Event& event) {
  const RankRecord& rank = recording.ranks.at(event.rank);
  Json json = Json::array({event.rank});
  const auto add_values = [&](const std::vector<float>& values) {
    if (!values.empty()) json.push_back(numbers(values));
  };
  switch (event.kind) {
    case Kind::rows:
      json.insert(json.end(), {event.first_row, event.num_rows});
      break;
    case Kind::forward:
    case Kind::backward:
      json.push_back(event.number);
      break;
    case Kind::gradient:
      json.push_back(rank.place_of(event.leaf));
      add_values(event.values);
      break;
    case Kind::arrival:
      json.insert(json.end(), {event.from, event.offset, event.num_elements, event.num_bytes,
                               event.adds ? 1 : 0});
      add_values(event.values);
      break;
    case Kind::call:
      if (event.peer >= 0) {
        json.insert(json.end(), {event.name, event.peer, event.num_bytes});
      } else {
        add_values(event.values);
      }
      break;
    case Kind::done:
      add_values(event.values);
      break;
    case Kind::freed:
      json.push_back(gathered_before(recording, story, event));
      break;
    case Kind::update:
      if (event.leaf != 0) json.push_back(rank.place_of(event.leaf));
      break;
  }
  return json;
}

Json parameters_json(const std::vector<Parameter>& parameters) {
  Json json = Json::array();
  for (const Parameter& parameter : parameters) {
    json.push_back({parameter.name, parameter.num_bytes, parameter.num_elements});
    if (!parameter.values.empty()) json.back().push_back(numbers(parameter.values));
  }
  return json;
}

// The bytes in use on the rank's device, when they change during the step.
Json memory_json(const StepRecording& recording, int rank) {
  Json json = Json::array();
  std::size_t last = 0;
  for (const trace::Sample& sample : recording.trace.memory) {
    const std::int64_t since = sample.time_ns - recording.begin_ns();
    if (sample.rank != rank || sample.time_ns > recording.end_ns()) continue;
    if (sample.num_bytes == last && !json.empty()) continue;
    last = sample.num_bytes;
    if (since < 0) json.clear();  // the last one before the step holds at its begin
    json.push_back({microseconds(std::max(0.0, 1e-3 * static_cast<double>(since))), last});
  }
  return json;
}

Json rank_json(const StepRecording& recording, const RankRecord& rank) {
  Json operations = Json::array();
  for (const Event& event : rank.events) {
    if (event.kind == Kind::forward) operations.push_back({event.name, event.num_bytes});
  }
  std::size_t num_updated = 0;
  std::uint64_t hash = 0;
  for (const Parameter& parameter : rank.updated) {
    num_updated += parameter.num_bytes;
    hash = hash * 31 + parameter.hash;
  }
  return {{"rank", rank.rank},
          {"parameters", parameters_json(rank.parameters)},
          {"updated", parameters_json(rank.updated)},
          {"operations", operations},
          {"state", rank.num_states * num_updated},
          {"hash", hash == 0 ? "" : fmt::format("{:04x}", hash & 0xffff)},
          {"memory", memory_json(recording, rank.rank)}};
}

// A rank's lane: what it did at each instant of the step. Pieces that touch and are alike are one,
// but those of a schedule, which have their calls.
Json lane_json(const StepRecording& recording, const std::vector<trace::Span>& pieces,
               bool is_comm) {
  Json json = Json::array();
  for (const trace::Span& piece : pieces) {
    if ((piece.lane == trace::Lane::comm) != is_comm) continue;
    const auto [begin, end] =
        trace::clip({piece.begin_ns, piece.end_ns}, {recording.begin_ns(), recording.end_ns()});
    if (begin >= end) continue;
    const auto since = [&](std::int64_t ns) {
      return microseconds(1e-3 * static_cast<double>(ns - recording.begin_ns()));
    };
    const std::string what = is_comm ? piece.name : std::string(trace::to_string(piece.category));
    if (recording.schedule) {
      json.push_back({since(begin), since(end), what, piece.name});
    } else if (!json.empty() && json.back()[2] == what && json.back()[1] == since(begin)) {
      json.back()[1] = since(end);
    } else {
      json.push_back({since(begin), since(end), what});
    }
  }
  return json;
}

// A rank's spans in the step, by phases. Operations belong to the phase around them; where there is
// none, on a device that times its kernels and on DataParallel's copies, they take its place.
std::vector<trace::Span> phases_of(const StepRecording& recording, int rank) {
  using trace::Category;
  std::vector<trace::Span> spans;
  std::ranges::copy_if(recording.trace.spans, std::back_inserter(spans), [&](const auto& span) {
    return span.rank == rank && span.begin_ns < recording.end_ns() &&
           span.end_ns > recording.begin_ns();
  });
  const auto is_of_device = [](const trace::Span& span) {
    return span.thread == trace::kDeviceThread && span.lane == trace::Lane::compute;
  };
  const bool is_timed = std::ranges::any_of(spans, is_of_device);
  const bool has_phases = !is_timed && std::ranges::any_of(spans, [](const trace::Span& span) {
    return span.category == Category::forward || span.category == Category::backward;
  });
  Category phase = Category::forward;
  std::int64_t end_ns = 0;  // of the operation around the next ones
  std::erase_if(spans, [&](trace::Span& span) {
    if (span.category != Category::op) return false;
    const std::string_view name = span.name;
    const bool is_inside = !is_timed && span.begin_ns < end_ns;
    if (has_phases || is_inside || (is_timed && !is_of_device(span))) return true;
    end_ns = span.end_ns;
    if (is_timed) {
      if (name.find("backward") != name.npos) phase = Category::backward;
    } else {
      const auto is_inside_of = [&](const Event& event) {
        return event.kind == Kind::forward && event.ns >= span.begin_ns && event.ns <= span.end_ns;
      };
      phase = std::ranges::any_of(recording.ranks.at(rank).events, is_inside_of)
                  ? Category::forward
                  : Category::backward;
    }
    span.category = name == "sgd" || name == "adamw" ? Category::optimizer : phase;
    return false;
  });
  return trace::pieces_of_rank(spans, rank);
}

Json moments_json(const StepRecording& recording, const Story& story,
                  std::vector<std::string>& reasons) {
  Json json = Json::array();
  for (const Moment& moment : story.moments) {
    const bool is_unnumbered = moment.kind == "rows" && !are_numbered(moment.events);
    auto reason = std::ranges::find(reasons, moment.reason);
    if (reason == reasons.end()) reason = reasons.insert(reason, moment.reason);
    Json events = Json::array();
    for (const Event* event : moment.events) {
      // A stage's pass, and the broadcast of all buffers, are moments of several kinds of events.
      if (event->kind != Kind::arrival && moment.kind == "arrive") continue;
      if (event->kind == Kind::gradient && moment.kind == "backward") {
        const std::size_t place = recording.ranks.at(event->rank).place_of(event->leaf);
        events.push_back({event->rank, -1 - static_cast<int>(place)});
        continue;
      }
      events.push_back(event_json(recording, story, *event));
      if (is_unnumbered && story.style != Style::tensor) events.back()[1] = nullptr;
    }
    json.push_back({moment.kind, moment.phase, microseconds(moment.us), moment.collective,
                    reason - reasons.begin(), events});
  }
  return json;
}

std::string_view to_string(Style style) {
  constexpr std::string_view kNames[] = {"single", "dp", "ddp", "sharded", "pipeline", "tensor"};
  return kNames[static_cast<std::size_t>(style)];
}

std::string_view to_string(Collective::Of of) {
  constexpr std::string_view kNames[] = {"gradients", "parameters", "other"};
  return kNames[static_cast<std::size_t>(of)];
}

// The moments' sentences. A reason stands where it is first given.
std::string list_of(const PageRecording& recording, const Story& story) {
  std::string html = fmt::format("<section><h2>{}</h2><ol>\n", tools::escape_html(recording.title));
  std::vector<std::string_view> given;
  for (const Moment& moment : story.moments) {
    html += fmt::format("<li><b>{}</b>", tools::escape_html(moment.sentence));
    if (std::ranges::find(given, moment.reason) == given.end()) {
      given.push_back(moment.reason);
      html += fmt::format(" <span>{}</span>", tools::escape_html(moment.reason));
    }
    html += "</li>\n";
  }
  return html + "</ol></section>\n";
}

}  // namespace

Json page_json(const PageRecording& page, const Story& story) {
  const StepRecording& recording = page.recording;
  Json json{
      {"title", page.title},
      {"about", page.about},
      {"style", to_string(story.style)},
      {"noun", noun_of(story.style)},
      {"code",
       {page.rows == PageRecording::Rows::of_engine ? "engine" : "",
        story.style == Style::ddp && !recording.is_wrapped ? "" : to_string(story.style)}},
      {"schedule", recording.schedule.has_value()},
      {"sharded",
       story.style == Style::sharded && !(recording.schedule && recording.schedule->begins_whole)},
      {"fault", story.fault},
      {"numbers", recording.has_numbers},
      {"us", microseconds(1e-3 * static_cast<double>(recording.end_ns() - recording.begin_ns()))},
      {"ranks", Json::array()},
      {"collectives", Json::array()},
      {"lanes", Json::array()}};
  for (const auto& [rank, record] : recording.ranks) {
    json["ranks"].push_back(rank_json(recording, record));
    const std::vector<trace::Span> pieces = phases_of(recording, rank);
    json["lanes"].push_back(
        {lane_json(recording, pieces, false), lane_json(recording, pieces, true)});
  }
  for (const Collective& collective : story.collectives) {
    json["collectives"].push_back({{"operation", collective.operation},
                                   {"label", collective.label},
                                   {"of", to_string(collective.of)},
                                   {"elements", collective.num_elements},
                                   {"bytes", collective.num_bytes},
                                   {"averages", collective.averages},
                                   {"parameters", collective.parameters},
                                   {"cuts", collective.cuts}});
  }
  std::vector<std::string> reasons;
  json["moments"] = moments_json(recording, story, reasons);
  json["reasons"] = reasons;
  return json;
}

std::string make_page(const std::vector<PageRecording>& recordings) {
  require(!recordings.empty(), ErrorCode::Usage, "watch", "there is no recording to show");
  Json all = Json::array();
  std::string lists;
  for (const PageRecording& recording : recordings) {
    const Story story = tell(recording.recording);
    all.push_back(page_json(recording, story));
    lists += list_of(recording, story);
  }
  tools::PageTemplate page(kHtml);
  page.put("/* page.css */", kCss);
  page.put("<!-- LISTS -->", lists);
  page.put("<!-- MAKER -->",
           recordings[0].recording.schedule
               ? "<code>lockstep grade</code> from a schedule, played on a model "
                 "of the machine. Times are the model's."
               : "<code>lockstep watch</code> from what the engine did. Times are "
                 "wall times.");
  page.put("\"RECORDINGS\"", tools::script_text(all));
  page.put("\"QUOTES\"", kQuotes);
  page.put("/* page.js */", kJs);
  return page.finish();
}

}  // namespace lockstep::watch
