// How a recorded step ended, and the fault that it shows.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tools/watch/words.h"

namespace lockstep::watch {
namespace {

using Of = Collective::Of;

// "Ranks 0 and 1 hold different models: W1 differs."; empty if no two ranks' weights differ.
std::string difference(const StepRecording& recording) {
  const auto& [first, reference] = *recording.ranks.begin();
  for (const auto& [rank, record] : recording.ranks) {
    for (std::size_t i = 0; i < reference.updated.size(); ++i) {
      if (i < record.updated.size() && record.updated[i].hash == reference.updated[i].hash)
        continue;
      return fmt::format("Ranks {} and {} hold different models: {} differs.", first, rank,
                         reference.updated[i].name);
    }
  }
  return {};
}

// The first parameter whose gradient was added to after its collective was called; empty: none.
std::string late_gradient(const RankRecord& rank, const Story& story) {
  std::set<std::uintptr_t> called;
  for (const Event& event : rank.events) {
    for (const Collective& collective : story.collectives) {
      const bool is_its = event.kind == Event::Kind::call && event.peer < 0 &&
                          collective.sequence == event.number && collective.of == Of::gradients;
      for (const std::size_t i : collective.parameters) {
        if (is_its) called.insert(rank.parameters.at(i).leaf);
      }
    }
    if (event.kind != Event::Kind::gradient || !called.contains(event.leaf)) continue;
    return std::ranges::find(rank.parameters, event.leaf, &Parameter::leaf)->name;
  }
  return {};
}

std::string reason_of_fault(const StepRecording& recording, const Story& story) {
  const std::string late = late_gradient(recording.ranks.begin()->second, story);
  if (!late.empty()) {
    return fmt::format(
        "A gradient of {} came after its all-reduce, so each rank added its own to the mean.",
        late);
  }
  const auto is_message = [](const Moment& moment) { return moment.kind == "message"; };
  if (std::ranges::any_of(story.moments, is_message)) {
    return "What the ranks sent each other by themselves did not make their gradients equal.";
  }
  const auto is_of_gradients = [](const Collective& c) { return c.of == Of::gradients; };
  if (std::ranges::none_of(story.collectives, is_of_gradients)) {
    return "No rank sent its gradients to another in this step, so each followed its own rows.";
  }
  return std::ranges::all_of(story.collectives, &Collective::is_complete)
             ? "Every rank averaged its gradients, so they began with different weights, or "
               "changed "
               "them otherwise."
             : "A collective brought not every rank's gradient to every rank.";
}

// Sizes as the grader prints them.
Said say_end_of_schedule(const StepRecording& recording, Story& story) {
  story.fault = recording.schedule->wrong;
  if (!story.fault.empty()) {
    return {fmt::format("The step ends here, because the schedule breaks a rule. {}.",
                        capital(story.fault)),
            "What comes after it is not played."};
  }
  std::size_t most = 0;
  for (const trace::Sample& sample : recording.trace.memory)
    most = std::max(most, sample.num_bytes);
  return {fmt::format("The step is over after {:.2f} ms, and no GPU held more than {:.2f} MB.",
                      1e-6 * static_cast<double>(recording.end_ns() - recording.begin_ns()),
                      1e-6 * static_cast<double>(most)),
          "Gaps in the compute streams and plateaus of the memory are where another schedule may "
          "win."};
}

}  // namespace

Said say_end(const StepRecording& recording, Story& story) {
  if (recording.schedule) return say_end_of_schedule(recording, story);
  const std::size_t num_ranks = recording.ranks.size();
  switch (story.style) {
    case Style::single:
      return {"The step is over: one device has made it alone.", "There was nobody to talk to."};
    case Style::data_parallel:
      return {
          "The step is over. Only device 0 has the new weights; the others' copies are out of "
          "date.",
          "So the next step begins with Replicate again."};
    case Style::sharded:
      return {fmt::format("The step is over: each rank has changed its own part, 1/{} of the "
                          "weights.",
                          num_ranks),
              "No rank has all new weights yet. The next forward pass gathers them."};
    case Style::pipeline:
      return {fmt::format("The step is over: the {} stages hold one model together.", num_ranks),
              "Each has changed the weights of its own layers."};
    case Style::tensor:
      return {fmt::format("The step is over: the {} ranks hold one model together.", num_ranks),
              "Each has changed its part of every matrix that is cut."};
    case Style::ddp:
      break;
  }
  story.fault = difference(recording);
  if (!story.fault.empty()) {
    return {"The step is over, and the ranks' weights differ. " + story.fault,
            reason_of_fault(recording, story)};
  }
  return {fmt::format("The step is over, and the weights are equal on {}, bit for bit.",
                      all_of(num_ranks, "rank")),
          "Equal weights, equal gradients, one rule: that is all that keeps the copies equal."};
}

}  // namespace lockstep::watch
