// A recording to write: two ranks, three steps each, as DDP would record them.
#pragma once

#include "engine/trace/recorder.h"

namespace lockstep::trace {

// Each step holds forward and backward with two ops each, an all-reduce on the rank's comm thread
// that overlaps backward, the wait for it, and the optimizer. Times are in units of 1001 ns.
inline Recording two_ranks_three_steps() {
  constexpr std::int64_t kUnit = 1001;
  Recording recording;
  const auto add = [&](const char* name, std::int64_t begin, std::int64_t end, int rank,
                       std::uint32_t thread, Lane lane, Category category) -> Span& {
    recording.spans.push_back({.name = name,
                               .begin_ns = begin * kUnit,
                               .end_ns = end * kUnit,
                               .rank = rank,
                               .thread = thread,
                               .lane = lane,
                               .category = category});
    return recording.spans.back();
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
        add("linear backward", at, at + 90, rank, main_thread, Lane::compute, Category::op);
      }
      Span& reduce = add("all_reduce", t + 410, t + 700, rank, main_thread + 1, Lane::comm,
                         Category::communication);
      reduce.num_bytes = 4096;
      reduce.sequence = static_cast<std::int64_t>(step);
      add("wait all_reduce", t + 600, t + 701, rank, main_thread, Lane::host,
          Category::communication);
      add("sgd", t + 710, t + 980, rank, main_thread, Lane::compute, Category::optimizer);
    }
  }
  return recording;
}

}  // namespace lockstep::trace
