// The sentences of a story. Each is a claim about the recorded step, and names its figures.
#include <algorithm>
#include <cctype>
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

std::string capital(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
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
    return fmt::format("{}{} {}", capital(noun_), ranks.size() == 1 ? "" : "s",
                       fmt::join(ranks, ", "));
  }
  // The same inside of a sentence.
  std::string who_inside() const {
    std::string text = who();
    text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
    return text;
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
  // True if some rank still computes its backward pass afterwards.
  bool is_before_last_backward() const {
    return std::any_of(
        story_.moments.begin() + static_cast<std::ptrdiff_t>(place_) + 1, story_.moments.end(),
        [](const Moment& later) { return later.kind == "backward" || later.kind == "gradient"; });
  }

  std::optional<std::pair<int, int>> ranks_with_the_same_rows() const {
    for (const Event* row : moment().events) {
      for (const Event* other : moment().events) {
        if (row->rank < other->rank && row->hash == other->hash && row->num_rows > 0) {
          return std::pair(row->rank, other->rank);
        }
      }
    }
    return std::nullopt;
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
  if (words.num_ranks() == 1) {
    return {fmt::format("The device takes {} of the batch.", plural(event.num_rows, "row")),
            "One device computes everything."};
  }
  if (words.style() == Style::data_parallel) {
    return {fmt::format("The batch of {} is on device 0.", plural(event.num_rows, "row")),
            "One thread drives DataParallel: it loads the whole batch, and cuts it afterwards."};
  }
  if (words.style() == Style::tensor) {
    return {fmt::format("{} take the same {}.", words.who(), plural(event.num_rows, "row")),
            "The matrices are cut and not the batch, so each rank needs every row."};
  }
  if (const auto two = words.ranks_with_the_same_rows()) {
    return {fmt::format("Ranks {} and {} take the same rows.", two->first, two->second),
            "What two ranks compute counts twice, and other rows are not seen in this step."};
  }
  if (!are_numbered(words.moment().events)) {
    return {fmt::format("{} {} {} each.", words.who(), words.verb("takes", "take"),
                        plural(event.num_rows, "row")),
            "The loss of a row depends on no other row, so each rank can compute its share."};
  }
  std::vector<std::string> shares;
  constexpr std::size_t kMost = 4;
  for (const Event* told : words.moment().events) {
    if (shares.size() == kMost) break;
    shares.push_back(fmt::format("{} {} rows {} to {}", words.noun(), told->rank, told->first_row,
                                 told->first_row + told->num_rows - 1));
  }
  return {fmt::format("{} {} rows of the batch: {}{}.", words.who(),
                      words.verb("takes its own", "take their own"), fmt::join(shares, ", "),
                      words.moment().events.size() > kMost ? ", and so on" : ""),
          "The loss of a row depends on no other row, so each rank can compute its share without "
          "asking anyone."};
}

Said say_copy(const Words& words) {
  const std::string& kind = words.moment().kind;
  const std::string moved = bytes_text(words.bytes_moved());
  if (kind == "scatter") {
    return {fmt::format("Scatter: the batch is cut by rows, and {} of it travel.", moved),
            "Each device computes only its share, so it needs only these rows."};
  }
  if (kind == "replicate") {
    return {fmt::format("Replicate: device 0 sends its weights to {}, {} in all.",
                        words.num_ranks() == 2 ? "device 1" : "every other device", moved),
            "The copies of the last step are out of date: only device 0 changed its weights. It "
            "sends them all, in every step."};
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
    const bool is_shared = words.are_several() && words.style() != Style::tensor;
    return {fmt::format("{} {} the loss of {}.", words.who(), words.verb("computes", "compute"),
                        is_shared ? "their own rows" : plural(event.num_rows, "row")),
            "The loss is the end of forward, and backward begins with its gradient."};
  }
  return {fmt::format("Forward: {} {} {}; the result has {}{}.", words.who_inside(),
                      words.verb("computes", "compute"), event.name, bytes_text(event.num_bytes),
                      words.are_several() ? " on each" : ""),
          "The result stays in memory, because backward needs it."};
}

Said say_backward(const Words& words) {
  const Event& event = words.event();
  if (words.style() == Style::pipeline) {
    return {fmt::format("{} computes backward for rows {} to {}, and adds to its gradients.",
                        words.who(), event.first_row, event.first_row + event.num_rows - 1),
            "What forward kept for these rows is not needed any more."};
  }
  return {fmt::format("Backward: {} {} through {}.", words.who_inside(), words.verb("goes", "go"),
                      event.name),
          "Layers are passed in reverse: the gradient of a result gives those of the weights and "
          "of the input."};
}

Said say_gradient(const Words& words, const Story& story) {
  const Event& event = words.event();
  const auto& parameters = words.rank().parameters;
  const auto place = static_cast<std::size_t>(
      std::ranges::find(parameters, event.leaf, &Parameter::leaf) - parameters.begin());
  const std::string name = place < parameters.size() ? parameters[place].name : "a parameter";
  const Collective* its = nullptr;
  for (const Collective& collective : story.collectives) {
    const bool holds_it = std::ranges::count(collective.parameters, place) > 0;
    if (collective.of == Of::gradients && holds_it) its = &collective;
  }
  const bool is_one = words.num_ranks() == 1 || words.style() == Style::data_parallel;
  const auto comes_again = [&](const Event& later) {
    return later.kind == event.kind && later.leaf == event.leaf && later.ns > event.ns;
  };
  const bool is_last = std::ranges::none_of(words.rank().events, comes_again);
  const std::string where = its == nullptr ? "" : fmt::format(", and lies in {}", its->label);
  return {fmt::format("The gradient of {} is ready{} ({}){}.", name,
                      is_one                ? ""
                      : words.are_several() ? " on each rank"
                                            : " on one rank",
                      bytes_text(event.num_bytes), where),
          !is_last ? "More is added to it by the next micro-batch, so nothing is sent yet."
          : its != nullptr
              ? "Gradients share a buffer, since one long message costs less than many "
                "short ones."
          : is_one ? "It waits for the optimizer."
          : words.style() == Style::tensor
              ? "Each rank has its own part of the matrix, so this gradient is complete."
              : "No collective of this step takes it along."};
}

Said say_call(const Words& words, const Collective& collective) {
  const std::string size = bytes_text(collective.num_bytes);
  if (collective.of == Of::gradients) {
    const bool is_hidden = words.is_before_last_backward();
    return {fmt::format("{} is full{}: its {} starts ({}, {}){}.", capital(collective.label),
                        words.are_several() ? " on every rank" : "", spelled(collective.operation),
                        plural(collective.num_elements, "number"), size,
                        is_hidden ? ", and backward goes on meanwhile" : ""),
            is_hidden ? "What is sent while the rank still computes costs no time of its own."
                      : "No backward is left to hide it behind, so the ranks wait for this one."};
  }
  if (collective.of == Of::parameters) {
    return {fmt::format("{} {} for {}: an all-gather of {} starts.", words.who(),
                        words.verb("asks", "ask"), collective.label, size),
            "Each rank keeps only its part of the weights between steps, and a layer needs them "
            "whole."};
  }
  if (collective.operation == "broadcast") {
    return {fmt::format("Rank 0 sends {} to the others ({}).", collective.label, size),
            "Running statistics are no weights: no gradient keeps them equal."};
  }
  return {fmt::format("The ranks all-reduce {} ({}): each has computed with its part of a matrix.",
                      collective.label, size),
          "The sum of all parts is the layer's result, and the next layer cannot begin without "
          "it. So nothing hides this one."};
}

Said say_arrival(const Words& words, const Collective& collective) {
  const Event& event = words.event();
  const std::string of = collective.of == Of::parameters ? "" : " of " + collective.label;
  const std::string step =
      collective.num_steps == 1
          ? "The"
          : fmt::format("Step {} of {} of the", event.step + 1, collective.num_steps);
  return {
      fmt::format("{} {}{}: {}, {} in all, {}.", step, spelled(collective.operation), of,
                  words.num_messages() == 1 ? "a chunk travels"
                                            : fmt::format("{} chunks travel", words.num_messages()),
                  bytes_text(words.bytes_moved()),
                  event.adds ? "and the receiver adds each to its own"
                             : "and take the place of what was there"),
      !event.adds ? "These chunks are finished, and the receivers only need a copy."
      : event.from.size() > 1
          ? "Each rank collects one chunk from all others, so the adding is shared out."
          : "A sum of some is passed on, so no rank needs to hear from all others."};
}

Said say_done(const Words& words, const Collective& collective) {
  const std::string still = words.is_before_last_backward() ? " Backward is still at work." : "";
  if (collective.of == Of::parameters) {
    return {fmt::format("{} {} {} whole now.", words.who(), words.verb("has", "have"),
                        collective.label),
            "The layer can be computed." + still};
  }
  if (collective.operation == "broadcast") return {"The buffers are alike on all ranks.", ""};
  if (!collective.is_complete) {
    return {fmt::format("The {} of {} is over, but not every rank's part is where it should be.",
                        spelled(collective.operation), collective.label),
            "What follows works with different numbers on different ranks."};
  }
  const std::string sum = collective.averages ? "mean" : "sum";
  if (collective.operation == "reduce_scatter") {
    return {fmt::format("Each rank holds the {} of its own part of {}.", sum, collective.label),
            "The optimizer here only changes this part, so the rest is not needed." + still};
  }
  const std::string all =
      words.num_ranks() == 2 ? "both ranks" : fmt::format("all {} ranks", words.num_ranks());
  return {fmt::format("{} hold{} the {} over {}, on each of them.", capital(collective.label),
                      collective.of == Of::gradients ? "s" : "", sum, all),
          (collective.of != Of::gradients
               ? "Now it is as if one rank had computed with the whole matrix."
           : collective.averages
               ? "That is the gradient of the whole batch, as one device would compute it."
               : "A sum grows with the number of ranks, unless the loss was divided before.") +
              still};
}

Said say_message(const Words& words) {
  const Event& event = words.event();
  const bool is_send = event.name == "send";
  const int from = is_send ? event.rank : event.peer;
  const int to = is_send ? event.peer : event.rank;
  if (event.num_elements == 1) {
    return {fmt::format("Stage {} tells stage {} the loss.", from, to),
            "Only the last stage has computed it."};
  }
  const bool is_forward = from < to;
  return {fmt::format("Stage {} sends {} stage {} ({}).", from,
                      is_forward ? "what it computed to" : "a gradient back to", to,
                      bytes_text(event.num_bytes)),
          is_forward ? "The next layers are there. Only activations travel, never weights."
                     : "The layers before it are there, and their backward begins with it."};
}

Said say_freed(const Words& words) {
  return {fmt::format("{} {} the whole parameters of a unit, and {} a part of them.", words.who(),
                      words.verb("gives back", "give back"), words.verb("keeps", "keep")),
          "They are gathered again when they are needed, so a rank never holds the whole model."};
}

Said say_update(const Words& words) {
  const RankRecord& rank = words.rank();
  const std::string what = words.style() == Style::sharded    ? "its part of the weights"
                           : words.style() == Style::pipeline ? "the weights of its layers"
                           : words.style() == Style::tensor   ? "its part of each matrix"
                                                              : "its weights";
  return {
      fmt::format("{} changes {}: {} with learning rate {}.",
                  words.are_several() ? "Each " + words.noun() : words.who(), what, rank.optimizer,
                  rank.learning_rate),
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
  if (kind == "message") return say_message(words);
  if (kind == "freed") return say_freed(words);
  if (kind == "update") return say_update(words);
  const int place = words.moment().collective;
  if (place < 0) return say_copy(words);
  const Collective& collective = story.collectives[static_cast<std::size_t>(place)];
  if (kind == "call") return say_call(words, collective);
  return kind == "arrive" ? say_arrival(words, collective) : say_done(words, collective);
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
            story.style == Style::tensor ? "Each has changed its part of every matrix that is cut."
                                         : "Each has changed the weights of its own layers."};
  }
  const std::optional<Difference> difference = first_difference(recording);
  if (!difference) {
    return {fmt::format("The step is over, and the weights are equal on {} ranks, bit for bit.",
                        num_ranks == 2 ? "both" : fmt::format("all {}", num_ranks)),
            "Equal weights, equal gradients, one rule: that is all that keeps the copies equal."};
  }
  story.fault = fmt::format("Ranks {} and {} hold different models: {} differs.", difference->rank,
                            difference->other, difference->name);
  const std::string late = late_gradient(recording.ranks.begin()->second, story);
  if (!late.empty()) {
    return {"The step is over, and the ranks' weights differ. " + story.fault,
            fmt::format("A gradient of {} came after its all-reduce, so each rank added its own to "
                        "the mean.",
                        late)};
  }
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
