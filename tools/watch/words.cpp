// The sentences of a story. Each is a claim about the recorded step, and names its figures.
#include <algorithm>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/watch/story_parts.h"

namespace lockstep::watch {
namespace {

using Of = Collective::Of;

std::string bytes_text(std::size_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  if (bytes < 1024 * 1024) return fmt::format("{:.3g} KiB", static_cast<double>(bytes) / 1024);
  return fmt::format("{:.3g} MiB", static_cast<double>(bytes) / (1024 * 1024));
}

std::string plural(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

// "reduce_scatter" as people write it.
std::string spelled(std::string_view operation) {
  std::string text(operation);
  std::ranges::replace(text, '_', '-');
  return text;
}

class Words {
 public:
  Words(const StepRecording& recording, const Story& story, std::size_t place)
      : recording_(recording), story_(story), place_(place), noun_(noun_of(story.style)) {}

  // "All 4 ranks", "Rank 2", "Ranks 0 and 1".
  std::string who() const {
    std::set<int> ranks;
    for (const Event* event : moment().events) ranks.insert(event->rank);
    if (ranks.size() == 1 && recording_.ranks.size() == 1) return "The device";
    if (ranks.size() > 1 && ranks.size() == recording_.ranks.size()) {
      return ranks.size() == 2 ? fmt::format("Both {}s", noun_)
                               : fmt::format("All {} {}s", ranks.size(), noun_);
    }
    std::string name = noun_;
    name[0] = static_cast<char>(name[0] - 'a' + 'A');
    return fmt::format("{}{} {}", name, ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
  }
  bool are_several() const {
    return std::ranges::any_of(moment().events, [&](const Event* event) {
      return event->rank != moment().events[0]->rank;
    });
  }
  // A verb for them: "computes" or "compute".
  std::string verb(std::string_view one, std::string_view several) const {
    return std::string(are_several() ? several : one);
  }

  const Moment& moment() const { return story_.moments[place_]; }
  const Event& event() const { return *moment().events[0]; }
  const RankRecord& rank() const { return recording_.ranks.at(event().rank); }
  const Collective* collective() const {
    return moment().collective < 0
               ? nullptr
               : &story_.collectives[static_cast<std::size_t>(moment().collective)];
  }

  // True if some rank still computes its backward pass afterwards.
  bool is_before_last_backward() const {
    return std::any_of(
        story_.moments.begin() + static_cast<std::ptrdiff_t>(place_) + 1, story_.moments.end(),
        [](const Moment& later) { return later.kind == "backward" || later.kind == "gradient"; });
  }

  std::string parameter_names(const std::vector<std::size_t>& places) const {
    const auto& parameters = recording_.ranks.begin()->second.parameters;
    constexpr std::size_t kMost = 4;
    std::vector<std::string> names;
    for (const std::size_t place : places) {
      if (names.size() == kMost) {
        names.back() = fmt::format("{} more", places.size() - kMost + 1);
        break;
      }
      names.push_back(parameters.at(place).name);
    }
    return fmt::format("{}", fmt::join(names, ", "));
  }

  std::string parameter_of_gradient() const {
    const auto& parameters = rank().parameters;
    const auto found = std::ranges::find(parameters, event().leaf, &Parameter::leaf);
    return found == parameters.end() ? "a parameter" : found->name;
  }

  // Bytes that all arrivals of the moment brought.
  std::size_t bytes_moved() const {
    std::size_t bytes = 0;
    for (const Event* event : moment().events) {
      for (const int from : event->from) bytes += from == event->rank ? 0 : event->num_bytes;
    }
    return bytes;
  }
  std::size_t num_messages() const {
    std::size_t count = 0;
    for (const Event* event : moment().events) {
      count += static_cast<std::size_t>(
          std::ranges::count_if(event->from, [&](int from) { return from != event->rank; }));
    }
    return count;
  }

  Style style() const { return story_.style; }
  const std::string& noun() const { return noun_; }
  std::size_t num_ranks() const { return recording_.ranks.size(); }

 private:
  const StepRecording& recording_;
  const Story& story_;
  std::size_t place_;
  std::string noun_;
};

struct Said {
  std::string sentence;
  std::string reason;
};

Said say_rows(const Words& words) {
  const Event& event = words.event();
  if (words.style() == Style::data_parallel || words.num_ranks() == 1) {
    return {fmt::format("The batch of {} is on {} {}.", plural(event.num_rows, "row"),
                        words.num_ranks() == 1 ? "the" : "the first", "device"),
            words.num_ranks() == 1
                ? "One device computes everything, so it takes all rows."
                : "DataParallel is driven by one thread, which loads the whole batch and cuts it "
                  "afterwards."};
  }
  std::vector<std::string> shares;
  std::size_t first = 0;
  for (const Event* told : words.moment().events) {
    if (shares.size() < 4) {
      shares.push_back(fmt::format("{} {} rows {} to {}", words.noun(), told->rank, told->first_row,
                                   told->first_row + told->num_rows - 1));
    }
    first += told->first_row;
  }
  if (words.style() == Style::tensor || (words.are_several() && first == 0)) {
    return {fmt::format("{} {} the same {}.", words.who(), words.verb("takes", "take"),
                        plural(event.num_rows, "row")),
            "The matrices are cut and not the batch, so each rank needs every row."};
  }
  const bool is_cut_short = words.moment().events.size() > shares.size();
  return {fmt::format("{} {} rows of the batch: {}{}.", words.who(),
                      words.verb("takes its own", "take their own"), fmt::join(shares, ", "),
                      is_cut_short ? ", and so on" : ""),
          "The loss of a row depends on no other row, so each rank can compute its share without "
          "asking anyone."};
}

Said say_copy(const Words& words) {
  const std::string& kind = words.moment().kind;
  const std::string moved = bytes_text(words.bytes_moved());
  if (kind == "scatter") {
    return {fmt::format("Scatter: the batch is cut by rows, and {} of it travel to the other "
                        "devices.",
                        moved),
            "Each device computes only its share, so it needs only these rows."};
  }
  if (kind == "replicate") {
    return {fmt::format("Replicate: device 0 sends its weights to {}, {} in all.",
                        words.num_ranks() == 2 ? "device 1" : "every other device", moved),
            "The copies of the last step are out of date: only device 0 changed its weights. One "
            "link carries it all, in every step."};
  }
  if (kind == "gather") {
    return {fmt::format("Gather: the outputs come back to device 0, {} of them.", moved),
            "The loss is computed in one place, of the whole batch."};
  }
  return {fmt::format("Reduce: device 0 adds up the gradients of all {} devices; {} travel to it.",
                      words.num_ranks(), moved),
          "The optimizer is on device 0 alone, so the others only send."};
}

Said say_forward(const Words& words) {
  const Event& event = words.event();
  if (words.style() == Style::pipeline) {
    return {fmt::format("{} computes its layers for rows {} to {} (forward).", words.who(),
                        event.first_row, event.first_row + event.num_rows - 1),
            "It has only these layers. What it computes must stay until the same rows come back in "
            "backward."};
  }
  if (words.moment().kind == "loss") {
    return {
        fmt::format("{} {} the loss of {} rows.", words.who(), words.verb("computes", "compute"),
                    words.are_several() ? "their own" : plural(event.num_rows, "row") + ","),
        "The loss is the end of forward, and backward begins with its gradient."};
  }
  return {fmt::format("Forward: {} {} {}; the result has {}.",
                      words.num_ranks() == 1 ? "the device" : words.who(),
                      words.verb("computes", "compute"), event.name,
                      bytes_text(event.num_bytes) + (words.are_several() ? " on each" : "")),
          "The result stays in memory, because backward needs it."};
}

Said say_backward(const Words& words) {
  const Event& event = words.event();
  if (words.style() == Style::pipeline) {
    return {fmt::format("{} computes backward for rows {} to {}, and adds to its gradients.",
                        words.who(), event.first_row, event.first_row + event.num_rows - 1),
            "The gradient has come back from the stage behind it, and what forward kept for these "
            "rows is free now."};
  }
  return {
      fmt::format("Backward: {} {} through {}.",
                  words.num_ranks() == 1 ? "the device" : words.who(), words.verb("goes", "go"),
                  event.name),
      "Layers are passed in reverse: the gradient of a result gives those of the weights and of "
      "the input."};
}

Said say_gradient(const Words& words, const Story& story) {
  const Event& event = words.event();
  const auto& parameters = words.rank().parameters;
  const auto place = static_cast<std::size_t>(
      std::ranges::find(parameters, event.leaf, &Parameter::leaf) - parameters.begin());
  std::string where;
  for (const Collective& collective : story.collectives) {
    const bool is_its =
        collective.of == Of::gradients &&
        std::ranges::find(collective.parameters, place) != collective.parameters.end();
    if (is_its) where = fmt::format(" and lies in {}", collective.label);
  }
  const bool is_one = words.num_ranks() == 1 || words.style() == Style::data_parallel;
  std::string reason = where.empty()
                           ? "It waits for the optimizer."
                           : "Gradients share a buffer, since one long message costs less than "
                             "many short ones.";
  if (!is_one && where.empty()) {
    reason = story.style == Style::tensor
                 ? "Each rank has its own part of the matrix, so this gradient is complete."
                 : "No collective of this step takes it along.";
  }
  return {fmt::format(
              "The gradient of {} is ready{} ({}){}.", words.parameter_of_gradient(),
              is_one ? "" : fmt::format(" on {}", words.are_several() ? "each rank" : words.who()),
              bytes_text(event.num_bytes), where),
          reason};
}

Said say_call(const Words& words) {
  const Collective* const collective = words.collective();
  if (collective == nullptr) return {};
  const std::string size = bytes_text(collective->num_bytes);
  const bool is_hidden = words.moment().phase == 2 && words.is_before_last_backward();
  if (collective->of == Of::gradients) {
    return {fmt::format("{}{} is full{}: its {} starts ({}, {}){}.",
                        static_cast<char>(collective->label[0] - 'a' + 'A'),
                        collective->label.substr(1), words.are_several() ? " on every rank" : "",
                        spelled(collective->operation), plural(collective->num_elements, "number"),
                        size, is_hidden ? ", and backward goes on meanwhile" : ""),
            is_hidden ? "Whoever sends while it still computes gets that time for nothing."
                      : "No backward is left to hide it behind, so the ranks wait for this one."};
  }
  if (collective->of == Of::parameters) {
    return {fmt::format("{} {} for {}: an all-gather of {} starts.", words.who(),
                        words.verb("asks", "ask"), collective->label, size),
            "Each rank keeps only its part of the weights between steps, and a layer needs them "
            "whole."};
  }
  if (collective->operation == "broadcast") {
    return {fmt::format("Rank 0 sends {} to the others ({}).", collective->label, size),
            "Running statistics are no weights: no gradient keeps them equal."};
  }
  return {fmt::format("The ranks all-reduce {} ({}): each has computed with its part of a matrix.",
                      collective->label, size),
          "The sum of all parts is the layer's result, and the next layer cannot begin without it. "
          "So nothing hides this one."};
}

Said say_arrival(const Words& words) {
  const Collective* const collective = words.collective();
  if (collective == nullptr) return {};
  const Event& event = words.event();
  const std::string what = collective->of == Of::other && collective->operation == "all_reduce"
                               ? collective->label
                               : (collective->of == Of::parameters ? "" : collective->label);
  return {
      fmt::format("{}{}, step {} of {}: {}, {} in all, {}.", spelled(collective->operation),
                  what.empty() ? "" : " of " + what, event.step + 1, collective->num_steps,
                  words.num_messages() == 1 ? "a chunk travels"
                                            : fmt::format("{} chunks travel", words.num_messages()),
                  bytes_text(words.bytes_moved()),
                  event.adds ? "and the receiver adds each to its own"
                             : "and take the place of what was there"),
      event.adds ? "Sums of sums are the whole sum, so no rank needs every rank's chunk itself."
                 : "These chunks are finished, and the receivers only need a copy."};
}

Said say_done(const Words& words) {
  const Collective* const collective = words.collective();
  if (collective == nullptr) return {};
  const std::string still = words.moment().phase == 2 && words.is_before_last_backward()
                                ? " Backward is still at work."
                                : "";
  if (collective->of == Of::parameters) {
    return {fmt::format("{} {} {} whole now.", words.who(), words.verb("has", "have"),
                        collective->label),
            "The layer can be computed." + still};
  }
  const std::string sum = collective->averages ? "mean" : "sum";
  if (collective->operation == "reduce_scatter") {
    return {fmt::format("Each rank holds the {} of its own part of {}{}.", sum, collective->label,
                        collective->is_complete ? "" : ", but not of every rank's gradients"),
            "The optimizer here only changes this part, so the rest of the mean is not needed." +
                still};
  }
  if (collective->operation == "broadcast") return {"The buffers are alike.", ""};
  if (!collective->is_complete) {
    return {fmt::format("The {} of {} is over, but not every rank holds all ranks' parts.",
                        spelled(collective->operation), collective->label),
            "What follows works with different numbers on different ranks."};
  }
  return {fmt::format("{} holds the {} over all {} ranks, on each of them.",
                      collective->of == Of::gradients
                          ? std::string(1, static_cast<char>(collective->label[0] - 'a' + 'A')) +
                                collective->label.substr(1)
                          : "The buffer",
                      sum, words.num_ranks()),
          (collective->of == Of::gradients
               ? (collective->averages
                      ? "That is the gradient of the whole batch, as one device would compute it."
                      : "A sum grows with the number of ranks, unless the loss was divided before.")
               : "Now it is as if one rank had computed with the whole matrix.") +
              still};
}

Said say_message(const Words& words) {
  const Event& event = words.event();
  const bool is_send = event.name == "send";
  const int from = is_send ? event.rank : event.peer;
  const int to = is_send ? event.peer : event.rank;
  const std::string size = bytes_text(event.num_bytes);
  if (event.num_elements == 1) {
    return {fmt::format("Stage {} tells stage {} the loss.", from, to),
            "Only the last stage has computed it."};
  }
  if (from < to) {
    return {fmt::format("Stage {} sends what it computed to stage {} ({}).", from, to, size),
            "The next layers are there. Only activations travel, never weights."};
  }
  return {fmt::format("Stage {} sends a gradient back to stage {} ({}).", from, to, size),
          "The layers before it are there, and their backward begins with it."};
}

Said say_freed(const Words& words) {
  return {fmt::format("{} {} the whole parameters of a unit, and {} a part of them.", words.who(),
                      words.verb("gives back", "give back"), words.verb("keeps", "keep")),
          "They will be gathered again when they are needed, so that no rank ever holds the whole "
          "model."};
}

Said say_update(const Words& words) {
  const RankRecord& rank = words.rank();
  const std::string what = words.style() == Style::sharded    ? "its part of the weights"
                           : words.style() == Style::pipeline ? "the weights of its layers"
                           : words.style() == Style::tensor   ? "its part of each matrix"
                                                              : "its weights";
  return {
      fmt::format("{} {} {}: {} with learning rate {}.", words.who(),
                  words.verb("changes", "change"),
                  words.are_several() && what.starts_with("its ") ? "each " + what : what,
                  rank.optimizer, rank.learning_rate),
      words.style() == Style::ddp
          ? "All ranks apply the same rule to the same gradients, so nobody has to send weights."
          : "The gradient says in which direction the loss falls."};
}

Said say(const Words& words, const Story& story) {
  const std::string& kind = words.moment().kind;
  if (kind == "rows") return say_rows(words);
  if (kind == "forward" || kind == "loss") return say_forward(words);
  if (kind == "backward") return say_backward(words);
  if (kind == "gradient") return say_gradient(words, story);
  if (kind == "call") return say_call(words);
  if (kind == "arrive") return say_arrival(words);
  if (kind == "done") return say_done(words);
  if (kind == "message") return say_message(words);
  if (kind == "freed") return say_freed(words);
  if (kind == "update") return say_update(words);
  return say_copy(words);
}

// The first parameter whose weights differ between two ranks, and these ranks.
struct Difference {
  std::string name;
  int rank = 0;
  int other = 0;
};
std::optional<Difference> first_difference(const StepRecording& recording) {
  const auto& [first, reference] = *recording.ranks.begin();
  for (const auto& [rank, record] : recording.ranks) {
    for (std::size_t i = 0; i < reference.updated.size(); ++i) {
      if (i >= record.updated.size() || record.updated[i].hash != reference.updated[i].hash) {
        return Difference{reference.updated[i].name, first, rank};
      }
    }
  }
  return std::nullopt;
}

Said say_end(const StepRecording& recording, Story& story) {
  const std::size_t num_ranks = recording.ranks.size();
  if (story.style == Style::single) {
    return {"The step is over: one device has made it alone.", "There was nobody to talk to."};
  }
  if (story.style == Style::data_parallel) {
    return {fmt::format("The step is over. Only device 0 has the new weights; the copies on the "
                        "other {} are out of date.",
                        num_ranks - 1),
            "So the next step begins with Replicate again."};
  }
  if (story.style == Style::sharded) {
    return {
        fmt::format("The step is over: each rank has changed its own part, 1/{} of the weights.",
                    num_ranks),
        "No rank has all new weights yet. The next forward pass gathers them."};
  }
  if (story.style != Style::ddp) {
    return {fmt::format("The step is over: the {} {}s hold one model together.", num_ranks,
                        noun_of(story.style)),
            "No weight is on two of them, so there is nothing to compare."};
  }
  const std::optional<Difference> difference = first_difference(recording);
  if (!difference) {
    return {fmt::format("The step is over, and the weights are equal on all {} ranks, bit for bit.",
                        num_ranks),
            "Equal weights, equal gradients, one rule: that is all that keeps the copies equal."};
  }
  story.fault = fmt::format("Ranks {} and {} hold different models: {} differs.", difference->rank,
                            difference->other, difference->name);
  std::size_t num_of_gradients = 0;
  bool is_complete = true;
  for (const Collective& collective : story.collectives) {
    if (collective.of != Of::gradients) continue;
    ++num_of_gradients;
    is_complete = is_complete && collective.is_complete;
  }
  return {"The step is over, and the ranks' weights differ. " + story.fault,
          num_of_gradients == 0
              ? "No rank sent its gradients to another in this step, so each followed its own rows."
          : !is_complete
              ? "A collective brought not every rank's gradient to every rank."
              : "Every rank averaged its gradients, so they began with different weights, or "
                "changed them otherwise."};
}

}  // namespace

void put_in_words(const StepRecording& recording, Story& story, std::size_t place) {
  Said said = say(Words(recording, story, place), story);
  story.moments[place].sentence = std::move(said.sentence);
  story.moments[place].reason = std::move(said.reason);
}

void put_end_in_words(const StepRecording& recording, Story& story) {
  Said said = say_end(recording, story);
  story.moments.back().sentence = std::move(said.sentence);
  story.moments.back().reason = std::move(said.reason);
}

}  // namespace lockstep::watch
