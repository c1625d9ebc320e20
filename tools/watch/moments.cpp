#include "tools/watch/moments.h"

#include <algorithm>
#include <map>

#include <set>

#include <fmt/format.h>

#include "tools/watch/story_parts.h"

namespace lockstep::watch {
namespace {

using Kind = Event::Kind;

bool any_event(const StepRecording& recording, const auto& is_meant) {
  return std::ranges::any_of(recording.ranks, [&](const auto& entry) {
    return std::ranges::any_of(entry.second.events, is_meant);
  });
}

// Names the moments to which events belong.
class Names {
 public:
  struct Name {
    std::string kind;
    std::string key;  // of one moment: what all ranks do alike has the same
  };

  Names(const StepRecording& recording, Style style)
      : recording_(recording), is_pipeline_(style == Style::pipeline) {}

  // Events come in the order of their ranks.
  Name name(const Event& event) {
    if (event.name == "broadcast") return {"arrive", "broadcast"};  // of all buffers
    switch (event.kind) {
      case Kind::rows:
        return {"rows", count(event, "rows")};
      case Kind::forward:
        if (is_pipeline_) return {"forward", pass_key(event, "forward")};
        return {event.name.starts_with("CrossEntropy") || event.name.starts_with("Mse") ? "loss"
                                                                                        : "forward",
                fmt::format("forward {}", event.number)};
      case Kind::backward:
        if (is_pipeline_) return {"backward", pass_key(event, "backward")};
        return {"backward", fmt::format("backward {}", event.number)};
      case Kind::gradient:
        if (is_pipeline_) return {"backward", pass_key(event, "backward")};
        return {"gradient", count(event, "gradient " + name_of_parameter(event))};
      case Kind::arrival:
        if (event.name == "reduce_gradients") return {"reduce", event.name};
        if (is_copy(event)) return {event.name, event.name};
        return {"arrive", fmt::format("arrive {} {}", event.number, event.step)};
      case Kind::call:
        if (event.peer >= 0) return {"message", message_key(event)};
        return {"call", fmt::format("call {}", event.number)};
      case Kind::done:
        return {"done", fmt::format("done {}", event.number)};
      case Kind::freed:
        return {"freed", count(event, "freed")};
      case Kind::update:
        return {"update", fmt::format("update {}", event.leaf)};
    }
    return {};
  }

 private:
  std::string count(const Event& event, const std::string& what) {
    return fmt::format("{} {}", what, counts_[{event.rank, what}]++);
  }

  // A stage's pass over a micro-batch: operations without anything else between them.
  std::string pass_key(const Event& event, const char* pass) {
    const std::string key = fmt::format("{} {} of {}", pass, event.first_row, event.rank);
    auto& [last, number] = passes_[event.rank];
    if (last != key) ++number;
    last = key;
    return fmt::format("{} {}", key, number);
  }

  // Ranks that hold parts of matrices have other parameters at the same place.
  std::string name_of_parameter(const Event& event) const {
    return recording_.ranks.at(event.rank).name_of(event.leaf);
  }

  // The n-th message from one rank to another is the n-th that arrives there.
  std::string message_key(const Event& event) {
    const bool is_send = event.name == "send";
    const std::string what = fmt::format("from {} to {}", is_send ? event.rank : event.peer,
                                         is_send ? event.peer : event.rank);
    return fmt::format("{} {}", what, counts_[{event.rank, event.name + what}]++);
  }

  const StepRecording& recording_;
  const bool is_pipeline_;
  std::map<std::pair<int, std::string>, std::size_t> counts_;
  std::map<int, std::pair<std::string, std::size_t>> passes_;  // of each rank, the last one
};

// The data, forward, backward and update phases of a step follow each other; communication belongs
// to the phase in which it happens.
void number_phases(std::vector<Moment>& moments) {
  const auto last = std::find_if(moments.rbegin(), moments.rend(), [](const Moment& moment) {
    return moment.kind == "backward" || moment.kind == "gradient";
  });
  std::size_t phase = 0;
  for (Moment& moment : moments) {
    const std::string& kind = moment.kind;
    if (kind == "forward" || kind == "loss") phase = std::max<std::size_t>(phase, 1);
    if (kind == "backward" || kind == "gradient") phase = std::max(phase, kBackward);
    // A layer may be updated while others are still in backward.
    if (kind == "update" && (last == moments.rend() || &moment > &*last)) phase = 3;
    if (kind == "end") phase = 4;
    moment.phase = phase;
  }
}

// The mean of its events' times; a message is there when it arrives.
double time_of(const Moment& moment, std::int64_t begin_ns) {
  double sum = 0;
  double last = 0;
  for (const Event* event : moment.events) {
    const double us = 1e-3 * static_cast<double>(event->ns - begin_ns);
    sum += us;
    last = std::max(last, us);
  }
  return moment.kind == "message" ? last : sum / static_cast<double>(moment.events.size());
}

// Sorts moments by their time, but none before what one of its ranks did earlier: on the thread
// that computes, on the one that communicates, or as the call of what arrives.
std::vector<Moment> in_order(std::vector<Moment> moments, const StepRecording& recording) {
  std::map<const Event*, std::size_t> place;
  for (std::size_t i = 0; i < moments.size(); ++i) {
    for (const Event* event : moments[i].events) place[event] = i;
  }
  std::set<std::pair<std::size_t, std::size_t>> edges;
  for (const auto& [rank, record] : recording.ranks) {
    const Event* computed = nullptr;
    const Event* communicated = nullptr;
    std::map<std::uint64_t, const Event*> calls;
    const auto follows = [&](const Event* before, const Event& event) {
      if (before != nullptr && place.at(before) != place.at(&event)) {
        edges.emplace(place.at(before), place.at(&event));
      }
    };
    for (const Event& event : record.events) {
      if (!place.contains(&event)) continue;
      const bool is_comm = event.kind == Kind::arrival || event.kind == Kind::done;
      if (event.kind == Kind::call && event.peer < 0) calls[event.number] = &event;
      if (is_comm && !is_copy(event)) follows(calls[event.number], event);
      follows(is_comm ? communicated : computed, event);
      // A message is a moment when it arrives, and its sender has gone on by then.
      if (event.name != "send") (is_comm ? communicated : computed) = &event;
    }
  }
  std::vector<std::size_t> num_before(moments.size());
  for (const auto& [before, after] : edges) ++num_before[after];
  std::vector<double> us;
  std::set<std::pair<double, std::size_t>> ready;
  for (std::size_t i = 0; i < moments.size(); ++i) {
    us.push_back(moments[i].us);
    if (num_before[i] == 0) ready.emplace(us[i], i);
  }
  // Ranks that did the same in different orders leave none that is ready: then time alone decides.
  std::set<std::pair<double, std::size_t>> waiting;
  for (std::size_t i = 0; i < moments.size(); ++i) waiting.emplace(moments[i].us, i);
  std::vector<Moment> ordered;
  while (!waiting.empty()) {
    const auto next = ready.empty() ? *waiting.begin() : *ready.begin();
    ready.erase(next);
    if (waiting.erase(next) == 0) continue;
    const std::size_t i = next.second;
    ordered.push_back(std::move(moments[i]));
    for (auto edge = edges.lower_bound({i, 0}); edge != edges.end() && edge->first == i; ++edge) {
      const std::size_t after = edge->second;
      if (--num_before[after] == 0) ready.emplace(us[after], after);
    }
  }
  return ordered;
}

std::vector<Moment> moments_of(const StepRecording& recording, Style style) {
  Names names(recording, style);
  std::map<std::string, Moment> by_key;
  for (const auto& [rank, record] : recording.ranks) {
    for (const Event& event : record.events) {
      if (event.name == "barrier") continue;
      const Names::Name name = names.name(event);
      Moment& moment = by_key[name.key];
      moment.kind = name.kind;
      moment.events.push_back(&event);
    }
  }
  std::vector<Moment> moments;
  for (auto& [key, moment] : by_key) {
    moment.us = time_of(moment, recording.begin_ns());
    moments.push_back(std::move(moment));
  }
  return in_order(std::move(moments), recording);
}

}  // namespace

bool is_copy(const Event& event) {
  return event.name == "scatter" || event.name == "replicate" || event.name == "gather" ||
         event.name == "reduce_gradients";
}

Style style_of(const StepRecording& recording) {
  const auto has = [&](Kind kind, std::string_view name) {
    return any_event(recording,
                     [&](const Event& event) { return event.kind == kind && event.name == name; });
  };
  if (has(Kind::arrival, "replicate")) return Style::data_parallel;
  if (recording.ranks.size() == 1) return Style::single;
  // A stage calls its own layers and not a whole model, so it has no rows.
  if (has(Kind::call, "send") && !has(Kind::rows, "")) return Style::pipeline;
  if (has(Kind::call, "reduce_scatter")) return Style::sharded;
  std::size_t num_of_gradients = 0;
  std::size_t num_others = 0;
  for (const Collective& collective : collectives_of(recording)) {
    const bool is_other =
        collective.of == Collective::Of::other && collective.operation == "all_reduce";
    num_of_gradients += collective.of == Collective::Of::gradients;
    num_others += is_other;
  }
  return num_others > num_of_gradients ? Style::tensor : Style::ddp;
}

bool are_numbered(const std::vector<const Event*>& rows) {
  return std::ranges::none_of(rows, [&](const Event* row) {
    return std::ranges::any_of(rows, [&](const Event* other) {
      return other->rank != row->rank &&
             (other->first_row == row->first_row || other->hash == row->hash);
    });
  });
}

std::string_view noun_of(Style style) {
  if (style == Style::data_parallel || style == Style::single) return "device";
  return style == Style::pipeline ? "stage" : "rank";
}

Story tell(const StepRecording& recording) {
  Story story;
  story.style = style_of(recording);
  story.collectives = collectives_of(recording);
  story.moments = moments_of(recording, story.style);
  Moment end;
  end.kind = "end";
  end.us = 1e-3 * static_cast<double>(recording.end_ns() - recording.begin_ns());
  story.moments.push_back(end);
  number_phases(story.moments);
  for (std::size_t i = 0; i + 1 < story.moments.size(); ++i) {
    Moment& moment = story.moments[i];
    const Event& event = *moment.events[0];
    const bool is_collective =
        moment.kind == "call" || moment.kind == "arrive" || moment.kind == "done";
    for (std::size_t c = 0; is_collective && c < story.collectives.size(); ++c) {
      if (story.collectives[c].sequence == event.number) moment.collective = static_cast<int>(c);
    }
  }
  put_in_words(recording, story);
  return story;
}

}  // namespace lockstep::watch
