// The words of which a story's sentences are made.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "tools/watch/story_parts.h"

namespace lockstep::watch {

struct Said {
  std::string sentence;
  std::string reason;
};

std::string bytes_text(std::size_t bytes);

// With a capital first letter.
std::string capital(std::string text);

// "both ranks", "all 4 ranks".
std::string all_of(std::size_t count, std::string_view noun);

// A moment with what its sentences need.
class Words {
 public:
  Words(const StepRecording& recording, const Story& story, std::size_t place)
      : recording_(recording),
        story_(story),
        place_(place),
        style(story.style),
        noun(noun_of(story.style)),
        moment(story.moments[place]),
        event(*moment.events[0]),
        rank(recording.ranks.at(event.rank)),
        num_ranks(recording.ranks.size()) {
    for (const Event* told : moment.events) acting_.insert(told->rank);
  }

  bool are_several() const { return acting_.size() > 1; }
  // The subject of a sentence, always singular: "each rank", "rank 2", "the device".
  std::string who() const {
    if (num_ranks == 1) return "the device";
    if (acting_.size() == num_ranks) return "each " + noun;
    return fmt::format("{}{} {}", are_several() ? "each of " : "",
                       noun + (are_several() ? "s" : ""), fmt::join(acting_, ", "));
  }

  // True if backward has begun, and some rank computes it afterwards, too.
  bool is_in_backward() const {
    return moment.phase >= kBackward &&
           std::any_of(story_.moments.begin() + static_cast<std::ptrdiff_t>(place_) + 1,
                       story_.moments.end(), [](const Moment& later) {
                         return later.kind == "backward" || later.kind == "gradient";
                       });
  }

  // Counts what all arrivals of the moment brought.
  std::size_t num_messages() const {
    std::size_t count = 0;
    for (const Event* told : moment.events) {
      count +=
          told->from.size() - static_cast<std::size_t>(std::ranges::count(told->from, told->rank));
    }
    return count;
  }
  // "W2", where the event says which.
  std::string name_of_leaf() const { return rank.name_of(event.leaf); }
  // "layer 0, layer 1": the operations of a stage's pass.
  std::string layers_of_pass() const {
    std::set<std::string> names;
    for (const Event* told : moment.events) names.insert(told->name);
    return fmt::format("{}", fmt::join(names, ", "));
  }
  bool is_schedule() const { return recording_.schedule.has_value(); }
  bool begins_whole() const { return recording_.schedule && recording_.schedule->begins_whole; }

  std::string bytes_moved() const {
    std::size_t bytes = 0;
    for (const Event* told : moment.events) {
      for (const int from : told->from) bytes += from == told->rank ? 0 : told->num_bytes;
    }
    return bytes_text(bytes);
  }

 private:
  const StepRecording& recording_;
  const Story& story_;
  std::size_t place_;
  std::set<int> acting_;

 public:
  const Style style;
  const std::string noun;
  const Moment& moment;
  const Event& event;  // the first one
  const RankRecord& rank;
  const std::size_t num_ranks;
};

// Says how the step ended; finds the story's fault.
Said say_end(const StepRecording& recording, Story& story);

}  // namespace lockstep::watch
