// A puzzle's schedule as a recording that the player plays.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "tools/grading/grade.h"
#include "tools/text/format.h"
#include "tools/watch/page.h"

namespace lockstep::tools::grading {
namespace {

using lab::Op;
using lab::Stream;
using watch::Event;
using Kind = watch::Event::Kind;

std::int64_t nanoseconds(double seconds) {
  return std::llround(1e9 * seconds);
}

// Made-up addresses, by which the player tells tensors apart.
std::uintptr_t leaf_of(int layer) {
  return 3 * static_cast<std::uintptr_t>(layer) + 1;
}
std::uintptr_t gradient_of(int layer) {
  return leaf_of(layer) + 1;
}
std::uintptr_t shard_of(int layer) {
  return leaf_of(layer) + 2;
}

class Converter {
 public:
  explicit Converter(const lab::Played& played) : played_(played) {
    const bool begins_whole = std::ranges::count(played.keeps, lab::Keep::shard) == 0;
    recording_.schedule = {played.wrong, begins_whole};
    for (int rank = 0; rank < played.sizes.num_gpus; ++rank) add_rank(rank);
    for (const lab::Event& event : played.events) add(event);
    std::ranges::stable_sort(recording_.trace.spans, {}, &trace::Span::begin_ns);
    std::ranges::stable_sort(recording_.trace.memory, {}, &trace::Sample::time_ns);
  }

  watch::StepRecording take() { return std::move(recording_); }

 private:
  std::size_t num_elements() const { return played_.sizes.parameter_bytes() / sizeof(float); }
  std::size_t num_holders(int layer) const {
    return played_.holders[static_cast<std::size_t>(layer)].size();
  }

  void add_rank(int rank) {
    watch::RankRecord& record = recording_.ranks[rank];
    record.rank = rank;
    record.optimizer = "SGD with momentum";
    record.num_states = 1;
    for (int layer = 0; layer < played_.sizes.num_layers; ++layer) {
      if (std::ranges::count(played_.holders[static_cast<std::size_t>(layer)], rank) == 0) continue;
      watch::Parameter parameter{.leaf = leaf_of(layer),
                                 .name = fmt::format("W{}", layer),
                                 .num_elements = num_elements(),
                                 .num_bytes = played_.sizes.parameter_bytes()};
      record.parameters.push_back(parameter);
      const bool is_whole = played_.keeps[static_cast<std::size_t>(layer)] == lab::Keep::whole;
      if (!is_whole) parameter.num_bytes /= num_holders(layer);
      record.updated.push_back(parameter);
    }
    if (static_cast<std::size_t>(rank) >= played_.memory.size()) return;
    for (const lab::Held& held : played_.memory[static_cast<std::size_t>(rank)]) {
      recording_.trace.memory.push_back(
          {.time_ns = nanoseconds(held.seconds), .num_bytes = held.num_bytes, .rank = rank});
    }
  }

  void tell(Event event) { recording_.ranks.at(event.rank).events.push_back(std::move(event)); }

  void add_span(const lab::Event& event, int rank, trace::Category category) {
    if (event.time.begin == event.time.end) return;
    const bool computes = event.stream == Stream::compute;
    recording_.trace.spans.push_back(
        {.name = trace::intern(to_string(event.verb)),
         .begin_ns = nanoseconds(event.time.begin),
         .end_ns = nanoseconds(event.time.end),
         .rank = rank,
         .thread = static_cast<std::uint32_t>(3 * rank + static_cast<int>(event.stream)),
         .lane = computes ? trace::Lane::compute : trace::Lane::comm,
         .category = category});
  }

  void add(const lab::Event& event) {
    if (event.stream == Stream::comm) return add_collective(event);
    const int rank = event.gpus[0];
    if (event.stream == Stream::copy) return add_span(event, rank, trace::Category::communication);
    const lab::Verb& verb = event.verb;
    switch (verb.op) {
      case Op::forward:
        return add_forward(event, rank);
      case Op::backward:
        return add_backward(event, rank);
      case Op::update:
        add_span(event, rank, trace::Category::optimizer);
        return tell({.kind = Kind::update,
                     .rank = rank,
                     .ns = nanoseconds(event.time.end),
                     .leaf = leaf_of(verb.layer)});
      case Op::free_parameters:
      case Op::free_gradient: {
        const bool is_gradient = verb.op == Op::free_gradient;
        return tell({.kind = Kind::freed,
                     .rank = rank,
                     .ns = nanoseconds(event.time.end),
                     .memory = is_gradient ? gradient_of(verb.layer) : shard_of(verb.layer),
                     .leaf = leaf_of(verb.layer),
                     .is_gradient = is_gradient});
      }
      case Op::all_reduce:
      case Op::reduce_scatter:
      case Op::all_gather:
        return add_call(event, rank);
      default:
        if (verb.is_message()) add_message(event, rank);
    }
  }

  Event of_rows(const lab::Event& event, int rank) const {
    const auto num_rows = static_cast<std::size_t>(played_.sizes.rows);
    const auto micro_batch = static_cast<std::size_t>(event.verb.micro_batch);
    return {.rank = rank,
            .ns = nanoseconds(event.time.begin),
            .name = fmt::format("layer {}", event.verb.layer),
            .first_row = micro_batch * num_rows,
            .num_rows = num_rows,
            .hash = micro_batch + 1,
            .num_bytes = played_.sizes.activation_bytes()};
  }

  // A pipeline's stages call layers and no model, so they take no rows (watch::style_of).
  void add_forward(const lab::Event& event, int rank) {
    add_span(event, rank, trace::Category::forward);
    Event told = of_rows(event, rank);
    if (event.verb.layer == 0 && !played_.sizes.is_pipeline) tell(told);
    told.kind = Kind::forward;
    told.number = num_forward_[rank]++;
    place_of_[{rank, event.verb.layer, event.verb.micro_batch}] = told.number;
    tell(std::move(told));
  }

  void add_backward(const lab::Event& event, int rank) {
    add_span(event, rank, trace::Category::backward);
    Event told = of_rows(event, rank);
    told.kind = Kind::backward;
    told.number = place_of_[{rank, event.verb.layer, event.verb.micro_batch}];
    tell(told);
    told.kind = Kind::gradient;
    told.ns = nanoseconds(event.time.end);
    told.leaf = leaf_of(event.verb.layer);
    told.num_bytes = played_.sizes.parameter_bytes();
    tell(std::move(told));
  }

  // Calls that belong together have the same number: the n-th of this kind and layer.
  std::uint64_t sequence_of(const lab::Verb& verb, int caller) {
    const std::size_t nth = num_calls_[{verb.op, verb.layer, caller}]++;
    return sequences_.try_emplace({verb.op, verb.layer, nth}, sequences_.size() + 1).first->second;
  }

  void add_call(const lab::Event& event, int rank) {
    const lab::Verb& verb = event.verb;
    const bool is_gather = verb.op == Op::all_gather;
    const std::size_t parts = is_gather ? num_holders(verb.layer) : 1;  // told by its part
    tell({.kind = Kind::call,
          .rank = rank,
          .ns = nanoseconds(event.time.begin),
          .name = std::string(lab::name_of(verb.op)),
          .number = sequence_of(verb, rank),
          .memory = is_gather ? shard_of(verb.layer) : gradient_of(verb.layer),
          .leaf = leaf_of(verb.layer),
          .num_elements = num_elements() / parts,
          .num_bytes = played_.sizes.parameter_bytes() / parts});
  }

  void add_collective(const lab::Event& event) {
    const auto begin = static_cast<double>(nanoseconds(event.time.begin));
    const auto end = static_cast<double>(nanoseconds(event.time.end));
    constexpr int kAll = -1;
    Event told{.name = std::string(lab::name_of(event.verb.op)),
               .number = sequence_of(event.verb, kAll)};
    const plan::CollectivePlan plan =
        lab::steps_of(event.verb.op, event.gpus.size(), num_elements());
    const auto num_steps = static_cast<double>(plan.steps.size());
    told.kind = Kind::arrival;
    for (told.step = 0; told.step < plan.steps.size(); ++told.step) {
      told.ns =
          std::llround(begin + (end - begin) * static_cast<double>(told.step + 1) / num_steps);
      for (const plan::Transfer& transfer : plan.steps[told.step].transfers) {
        told.rank = event.gpus[static_cast<std::size_t>(transfer.to_rank)];
        told.from = {event.gpus[static_cast<std::size_t>(transfer.from_rank)]};
        told.offset = transfer.chunk.offset;
        told.num_elements = transfer.chunk.count;
        told.num_bytes = transfer.chunk.count * sizeof(float);
        told.adds = transfer.combine == plan::Combine::add;
        tell(told);
      }
    }
    for (const int rank : event.gpus) {
      add_span(event, rank, trace::Category::communication);
      tell({.kind = Kind::done,
            .rank = rank,
            .ns = nanoseconds(event.time.end),
            .name = told.name,
            .number = told.number});
    }
  }

  void add_message(const lab::Event& event, int rank) {
    const bool is_send = event.verb.sends();
    tell({.kind = Kind::call,
          .rank = rank,
          .ns = nanoseconds(event.time.end),
          .name = is_send ? "send" : "recv",
          .peer = event.verb.other,
          .num_elements = played_.sizes.activation_bytes() / sizeof(float),
          .num_bytes = played_.sizes.activation_bytes(),
          .is_gradient = is_send && !event.verb.moves_activation()});
  }

  const lab::Played& played_;
  watch::StepRecording recording_;
  std::map<int, std::uint64_t> num_forward_;                             // by rank
  std::map<std::tuple<int, int, int>, std::uint64_t> place_of_;          // rank, layer, micro-batch
  std::map<std::tuple<Op, int, int>, std::size_t> num_calls_;            // op, layer, caller
  std::map<std::tuple<Op, int, std::size_t>, std::uint64_t> sequences_;  // op, layer, n-th
};

}  // namespace

std::string to_player(const std::string& title, const lab::Played& played) {
  const lab::PuzzleSizes& sizes = played.sizes;
  const std::string about = fmt::format(
      "{}, {}, {} micro-batches of {} rows; played on a DGX A100: {:.2f} ms, at most {:.2f} MB on "
      "a GPU",
      count_text(static_cast<std::size_t>(sizes.num_gpus), "GPU"),
      count_text(static_cast<std::size_t>(sizes.num_layers), "layer"), sizes.num_micro_batches,
      sizes.rows, 1e3 * played.seconds, 1e-6 * static_cast<double>(played.most_bytes));
  return watch::make_page(
      {{title, about, Converter(played).take(), watch::PageRecording::Rows::of_program}});
}

}  // namespace lockstep::tools::grading
