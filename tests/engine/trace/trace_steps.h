// A recording to write: two ranks, three steps each, as DDP would record them.
#pragma once

#include "engine/trace/recorder.h"

namespace lockstep::trace {

// Each step holds forward and backward with two ops each, an all-reduce on the rank's comm thread
// that overlaps backward, the wait for it, and the optimizer. Each of the two parameters' gradients
// flows from its op over the all-reduce to the optimizer. Times are in units of 1001 ns.
inline Recording two_ranks_three_steps() {
  constexpr std::int64_t kUnit = 1001;
  Recording recording;
  const auto add = [&](const char* name, std::int64_t begin, std::int64_t end, int rank,
                       std::uint32_t thread, Lane lane, Category category) -> Span& {
    recording.spans.push_back({.name = name,
                               .begin_ns = begin * kUnit,
                               .end_ns = end * kUnit,
                               .id = recording.spans.size() + 1,
                               .rank = rank,
                               .thread = thread,
                               .lane = lane,
                               .category = category});
    return recording.spans.back();
  };
  const auto pass = [&](std::uint64_t flow, const Span& span, std::int64_t time) {
    recording.flows.push_back({flow, span.id, time * kUnit});
  };
  for (int rank = 0; rank < 2; ++rank) {
    const auto main_thread = static_cast<std::uint32_t>(2 * rank);
    for (std::size_t step = 0; step < 3; ++step) {
      const std::int64_t t = 5000 + 1000 * static_cast<std::int64_t>(step) + rank;
      add("step", t, t + 990, rank, main_thread, Lane::host, Category::step).sequence =
          static_cast<std::int64_t>(step);
      add("forward", t + 10, t + 200, rank, main_thread, Lane::compute, Category::forward);
      add("linear", t + 20, t + 90, rank, main_thread, Lane::compute, Category::op);
      add("relu", t + 90, t + 190, rank, main_thread, Lane::compute, Category::op);
      add("backward", t + 200, t + 600, rank, main_thread, Lane::compute, Category::backward);
      for (std::size_t parameter = 0; parameter < 2; ++parameter) {
        const std::int64_t at = t + 210 + 100 * static_cast<std::int64_t>(parameter);
        pass(flow_id(rank, step, parameter),
             add("linear backward", at, at + 90, rank, main_thread, Lane::compute, Category::op),
             at + 89);
      }
      Span& reduce = add("all_reduce", t + 410, t + 700, rank, main_thread + 1, Lane::comm,
                         Category::communication);
      reduce.num_bytes = 4096;
      reduce.sequence = static_cast<std::int64_t>(step);
      pass(flow_id(rank, step, 0), reduce, t + 411);
      pass(flow_id(rank, step, 1), reduce, t + 412);
      add("wait all_reduce", t + 600, t + 701, rank, main_thread, Lane::host,
          Category::communication);
      const Span& optimizer =
          add("sgd", t + 710, t + 980, rank, main_thread, Lane::compute, Category::optimizer);
      pass(flow_id(rank, step, 0), optimizer, t + 711);
      pass(flow_id(rank, step, 1), optimizer, t + 711);
    }
  }
  return recording;
}

}  // namespace lockstep::trace
