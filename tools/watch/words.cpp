// The sentences of a story. Each is a claim about the recorded step, and names its figures.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "tools/watch/words.h"

namespace lockstep::watch {

std::string bytes_text(std::size_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  const auto kib = static_cast<double>(bytes) / 1024;
  return kib < 1024 ? fmt::format("{:.3g} KiB", kib) : fmt::format("{:.3g} MiB", kib / 1024);
}

std::string capital(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

std::string all_of(std::size_t count, std::string_view noun) {
  return count == 2 ? fmt::format("both {}s", noun) : fmt::format("all {} {}s", count, noun);
}

namespace {

using Of = Collective::Of;

// "reduce_scatter" as people write it.
std::string spelled(std::string text) {
  std::ranges::replace(text, '_', '-');
  return text;
}

Said say_rows(const Words& words) {
  const auto& rows = words.moment.events;
  const std::size_t count = words.event.num_rows;
  if (words.style == Style::data_parallel) {
    return {fmt::format("The batch of {} rows is on device 0.", count),
            "One thread drives DataParallel: it loads the whole batch, and cuts it afterwards."};
  }
  if (words.num_ranks == 1) {
    return {fmt::format("The device takes {} rows of the batch.", count),
            "One device computes everything."};
  }
  if (words.style == Style::tensor) {
    return {fmt::format("Each rank takes the same {} rows.", count),
            "The matrices are cut and not the batch, so each rank needs every row."};
  }
  for (const Event* row : rows) {
    for (const Event* other : rows) {
      if (row->rank >= other->rank || row->hash != other->hash || row->num_rows == 0) continue;
      return {fmt::format("Ranks {} and {} take the same rows.", row->rank, other->rank),
              "What two ranks compute counts twice, and other rows are not seen in this step."};
    }
  }
  constexpr const char* kReason =
      "The loss of a row depends on no other row, so each rank can compute its share without "
      "asking "
      "anyone.";
  if (!are_numbered(rows)) {
    return {fmt::format("{} takes its own {} rows.", capital(words.who()), count), kReason};
  }
  constexpr std::size_t kMost = 4;
  std::vector<std::string> shares;
  for (std::size_t i = 0; i < std::min(rows.size(), kMost); ++i) {
    shares.push_back(fmt::format("rank {} rows {} to {}", rows[i]->rank, rows[i]->first_row,
                                 rows[i]->first_row + rows[i]->num_rows - 1));
  }
  return {fmt::format("{} takes its own rows of the batch: {}{}.", capital(words.who()),
                      fmt::join(shares, ", "), rows.size() > kMost ? ", and so on" : ""),
          kReason};
}

Said say_copy(const Words& words) {
  const std::string& kind = words.moment.kind;
  const std::string moved = words.bytes_moved();
  if (kind == "scatter") {
    return {fmt::format("Scatter: the batch is cut by rows, and {} of it travel.", moved),
            "Each device computes only its share, so it needs only these rows."};
  }
  if (kind == "replicate") {
    return {fmt::format("Replicate: device 0 sends its weights to {}, {} in all.",
                        words.num_ranks == 2 ? "device 1" : "every other device", moved),
            "The copies of the last step are out of date: only device 0 changed its weights. It "
            "sends them all, in every step."};
  }
  if (kind == "gather") {
    return {fmt::format("Gather: the outputs come back to device 0, {} of them.", moved),
            "The loss is computed in one place, of the whole batch."};
  }
  return {fmt::format("Reduce: device 0 adds up the gradients of {}; {} travel to it.",
                      all_of(words.num_ranks, "device"), moved),
          "The optimizer is on device 0 alone, so the others only send."};
}

Said say_forward(const Words& words) {
  const Event& event = words.event;
  const std::string who = words.who();
  if (words.style == Style::pipeline) {
    return {fmt::format("{} computes {} for rows {} to {} (forward).", capital(who),
                        words.is_schedule() ? words.layers_of_pass() : "its layers",
                        event.first_row, event.first_row + event.num_rows - 1),
            "It has only these layers. What it computes must stay until the same rows come back in "
            "backward."};
  }
  if (words.moment.kind == "loss") {
    return {fmt::format("{} computes the loss of its {} rows.", capital(who), event.num_rows),
            "The loss is the end of forward, and backward begins with its gradient."};
  }
  return {fmt::format("Forward: {} computes {}; the result has {}.", who, event.name,
                      bytes_text(event.num_bytes)),
          "The result stays in memory, because backward needs it."};
}

Said say_backward(const Words& words) {
  const Event& event = words.event;
  if (words.style == Style::pipeline) {
    return {fmt::format("{} computes backward{} for rows {} to {}, and adds to its gradients.",
                        capital(words.who()),
                        words.is_schedule() ? " of " + words.layers_of_pass() : "", event.first_row,
                        event.first_row + event.num_rows - 1),
            "What forward kept for these rows is not needed any more."};
  }
  return {
      fmt::format("Backward: {} goes through {}.", words.who(), event.name),
      "Layers are passed in reverse: the gradient of a result gives those of the weights and of "
      "the input."};
}

// True if the rank adds to the event's gradient once more before it sends it.
bool adds_before_sending(const RankRecord& rank, const Event& gradient, const Story& story) {
  const auto place = rank.place_of(gradient.leaf);
  for (auto later = rank.events.begin() + (&gradient - rank.events.data()) + 1;
       later != rank.events.end(); ++later) {
    if (later->kind == gradient.kind && later->leaf == gradient.leaf) return true;
    const bool is_sent = std::ranges::any_of(story.collectives, [&](const Collective& collective) {
      return later->kind == Event::Kind::call && later->peer < 0 &&
             collective.of == Of::gradients && later->number == collective.sequence &&
             std::ranges::count(collective.parameters, place) > 0;
    });
    if (is_sent) return false;
  }
  return false;
}

Said say_gradient(const Words& words, const Story& story) {
  const Event& event = words.event;
  const std::string name = words.name_of_leaf();
  const std::size_t place = words.rank.place_of(event.leaf);
  const auto holds_it = [&](const Collective& collective) {
    return collective.is_bucket && std::ranges::count(collective.parameters, place) > 0;
  };
  const auto its = std::ranges::find_if(story.collectives, holds_it);
  const bool has_one = its != story.collectives.end();
  const bool comes_again = adds_before_sending(words.rank, event, story);
  const bool is_one = words.num_ranks == 1 || words.style == Style::data_parallel;
  return {fmt::format("The gradient of {} is ready{} ({}){}.", name.empty() ? "a parameter" : name,
                      is_one                ? ""
                      : words.are_several() ? " on each rank"
                                            : " on one rank",
                      bytes_text(event.num_bytes),
                      has_one ? fmt::format(", and lies in {}", its->label) : ""),
          comes_again ? "The next micro-batch adds to it, so nothing is sent yet."
          : has_one ? "Gradients share a buffer, since one long message costs less than many short "
                      "ones."
          : is_one  ? "It waits for the optimizer."
          : words.style == Style::tensor
              ? "Each rank has its own part of the matrix, so this gradient is complete."
              : "It is the gradient of the rank's own rows alone."};
}

Said say_call(const Words& words, const Collective& collective) {
  const std::string size = bytes_text(collective.num_bytes);
  if (collective.of == Of::gradients) {
    const bool is_hidden = words.is_in_backward();
    const std::string operation = spelled(collective.operation);
    const std::string what =
        collective.is_bucket
            ? fmt::format("{} is full{}: its {} starts", capital(collective.label),
                          words.are_several() ? " on every rank" : "", operation)
            : fmt::format("{} calls {} {} of {}", capital(words.who()),
                          operation.starts_with('a') ? "an" : "a", operation, collective.label);
    return {fmt::format("{} ({} numbers, {}){}.", what, collective.num_elements, size,
                        is_hidden ? ", and backward goes on meanwhile" : ""),
            !is_hidden ? "No backward is left to hide it behind, so the ranks wait for this one."
            : words.is_schedule()
                ? "Backward hides it, although each of the two slows the other down."
                : "What is sent while the rank still computes costs no time of its own."};
  }
  if (collective.of == Of::parameters) {
    return {fmt::format("{} asks for {}: an all-gather of {} starts.", capital(words.who()),
                        collective.label, size),
            words.begins_whole()
                ? "Each rank has updated only its part, so it has old weights in the others' parts."
                : "Each rank keeps only its part of the weights between steps, and a layer needs "
                  "them whole."};
  }
  return {fmt::format("The ranks all-reduce {} ({}): each has computed with its part of a matrix.",
                      collective.label, size),
          "The sum of all parts is the layer's result, and the next layer cannot begin without it. "
          "So nothing hides this one."};
}

Said say_arrival(const Words& words, const Collective& collective) {
  const Event& event = words.event;
  const std::string of = collective.of == Of::parameters ? "" : " of " + collective.label;
  const std::string step =
      collective.num_steps == 1
          ? "The"
          : fmt::format("Step {} of {} of the", event.step + 1, collective.num_steps);
  if (collective.operation == "broadcast") {
    return {fmt::format("Broadcast: rank 0 sends its buffers to the others, {} in all.",
                        words.bytes_moved()),
            "Running statistics are no weights: no gradient keeps them equal."};
  }
  const std::size_t count = words.num_messages();
  return {fmt::format("{} {}{}: {}, {} in all, {}.", step, spelled(collective.operation), of,
                      count == 1 ? "a chunk travels" : fmt::format("{} chunks travel", count),
                      words.bytes_moved(),
                      event.adds ? "and the receiver adds each to its own"
                                 : "and take the place of what was there"),
          !event.adds ? "These chunks are finished, and the receivers only need a copy."
          : event.from.size() > 1 || words.num_ranks == 2
              ? "Each rank adds up one chunk of all ranks, so the adding is shared out."
              : "A sum of some is passed on, so no rank needs to hear from all others."};
}

Said say_done(const Words& words, const Collective& collective) {
  const std::string still = words.is_in_backward() ? " Backward is still at work." : "";
  if (collective.of == Of::parameters) {
    return {fmt::format("{} has {} whole now.", capital(words.who()), collective.label),
            (words.begins_whole() ? "Its weights are new on every rank."
                                  : "The layer can be computed.") +
                still};
  }
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
  const bool is_of_gradients = collective.of == Of::gradients;
  return {fmt::format("{} hold{} the {} over {}, on each of them.", capital(collective.label),
                      is_of_gradients ? "s" : "", sum, all_of(words.num_ranks, "rank")),
          (!is_of_gradients ? "Now it is as if one rank had computed with the whole matrix."
           : collective.averages
               ? "That is the gradient of the whole batch, as one device would compute it."
           : words.is_schedule()
               ? "Each rank's share of the loss was weighted, so this is the batch's gradient."
               : "A sum grows with the number of ranks, unless the loss was divided before.") +
              still};
}

Said say_message(const Words& words) {
  const auto is_send = [](const Event* told) { return told->name == "send"; };
  const auto sent = std::ranges::find_if(words.moment.events, is_send);
  const bool is_told = sent != words.moment.events.end();  // else it was sent before the step
  const Event& event = is_told ? **sent : words.event;
  const auto [from, to] =
      is_told ? std::pair(event.rank, event.peer) : std::pair(event.peer, event.rank);
  if (words.style != Style::pipeline) {
    return {fmt::format("Rank {} sends {} to rank {}.", from, bytes_text(event.num_bytes), to),
            "The program does this by itself, so this page can't say what for."};
  }
  if (event.num_elements == 1) {
    return {fmt::format("Stage {} tells stage {} the loss.", from, to),
            "Only the last stage has computed it."};
  }
  return {fmt::format("Stage {} sends {} stage {} ({}).", from,
                      event.is_gradient ? "a gradient back to" : "what it computed to", to,
                      bytes_text(event.num_bytes)),
          event.is_gradient ? "The layers before it are there, and their backward begins with it."
                            : "The next layers are there. Only activations travel, never weights."};
}

Said say_freed(const Words& words) {
  const std::string who = capital(words.who());
  if (words.event.is_gradient) {
    return {fmt::format("{} gives back the whole gradient of {}, and keeps its part of the sum.",
                        who, words.name_of_leaf()),
            "Its part is all that the update needs."};
  }
  return {fmt::format("{} gives back the whole {}, and keeps its part of them.", who,
                      words.event.leaf != 0 ? "parameters " + words.name_of_leaf()
                                            : "parameters of a unit"),
          "They are gathered again when they are needed, so a rank never holds the whole model."};
}

Said say_update(const Words& words, const Story& story) {
  const bool has_leaf = words.event.leaf != 0;
  const std::string what = has_leaf && words.style == Style::sharded
                               ? "its part of " + words.name_of_leaf()
                           : has_leaf                       ? words.name_of_leaf()
                           : words.style == Style::sharded  ? "its part of the weights"
                           : words.style == Style::pipeline ? "the weights of its layers"
                           : words.style == Style::tensor   ? "its part of each matrix"
                                                            : "its weights";
  return {
      fmt::format("{} changes {}: {}.", capital(words.who()), what, words.rank.optimizer),
      words.style == Style::ddp && story.fault.empty()
          ? "All ranks apply the same rule to the same gradients, so nobody has to send weights."
          : "The gradient says in which direction the loss falls."};
}

Said say(const Words& words, const Story& story) {
  const std::string& kind = words.moment.kind;
  if (kind == "rows") return say_rows(words);
  if (kind == "forward" || kind == "loss") return say_forward(words);
  if (kind == "backward") return say_backward(words);
  if (kind == "gradient") return say_gradient(words, story);
  if (kind == "message") return say_message(words);
  if (kind == "update") return say_update(words, story);
  if (kind == "freed") return say_freed(words);
  if (words.moment.collective < 0) return say_copy(words);
  const Collective& collective =
      story.collectives[static_cast<std::size_t>(words.moment.collective)];
  if (kind == "call") return say_call(words, collective);
  return kind == "arrive" ? say_arrival(words, collective) : say_done(words, collective);
}

}  // namespace

void put_in_words(const StepRecording& recording, Story& story) {
  const Said end = say_end(recording, story);  // first, because it finds the fault
  for (std::size_t i = 0; i < story.moments.size(); ++i) {
    const bool is_end = i + 1 == story.moments.size();
    const Said said = is_end ? end : say(Words(recording, story, i), story);
    story.moments[i].sentence = said.sentence;
    story.moments[i].reason = said.reason;
  }
}

}  // namespace lockstep::watch
