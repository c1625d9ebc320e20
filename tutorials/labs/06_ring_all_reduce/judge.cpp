#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "engine/plan/collective_plan.h"
#include "tutorials/labs/judging/group_answer.h"

namespace lab {
namespace {

using lockstep::plan::even_chunk;

// One half of the ring: n-1 messages of every rank, because then each part has been everywhere.
std::string judge_half_messages(const json& inputs, const json& answer) {
  const std::size_t n = buffers_of(inputs).size();
  Sizes num_sent(n);
  for (const SentMessage& message : read_group_answer(answer).messages) {
    ++num_sent[static_cast<std::size_t>(message.from)];
  }
  for (std::size_t rank = 0; rank < n; ++rank) {
    if (num_sent[rank] == n - 1) continue;
    return fmt::format("{}: rank {} sends {}, expected n-1 = {}",
                       inputs.at("call").get<std::string>(), rank,
                       counted(num_sent[rank], "message"), n - 1);
  }
  return {};
}

// To the right neighbour only, one part at a time, 2 (n-1) steps.
std::string judge_ring_messages(const json& inputs, const json& answer) {
  const std::vector<Numbers> buffers = buffers_of(inputs);
  const auto n = static_cast<int>(buffers.size());
  const std::size_t largest = even_chunk(buffers[0].size(), buffers.size(), 0).count;
  std::map<std::pair<int, int>, std::size_t> num_in_step;  // keyed by sender and step
  int last_step = 0;
  for (const SentMessage& message : read_group_answer(answer).messages) {
    if (message.to != (message.from + 1) % n) {
      return fmt::format("rank {} sends to rank {}, expected to rank {} only", message.from,
                         message.to, (message.from + 1) % n);
    }
    if (message.num_elements > largest) {
      return fmt::format("rank {} sends {} elements at once, expected at most {}: one part",
                         message.from, message.num_elements, largest);
    }
    if (++num_in_step[{message.from, message.step}] > 1) {
      return fmt::format("rank {} sends several messages in step {}", message.from, message.step);
    }
    last_step = std::max(last_step, message.step);
  }
  if (last_step != 2 * (n - 1)) {
    return fmt::format("{}: expected {} steps, found {}", counted(buffers.size(), "rank"),
                       2 * (n - 1), last_step);
  }
  return {};
}

std::string judge_ring_sums_and_messages(const json& inputs, const json& answer) {
  const std::string wrong = judge_sums(inputs, answer);
  return wrong.empty() ? judge_ring_messages(inputs, answer) : wrong;
}

}  // namespace

Lab ring_all_reduce_lab() {
  Lab lab{"06_ring_all_reduce", "The ring all-reduce, by send and recv", {}};
  lab.checks = {
      visible("reduce_scatter_finishes_part_r_on_rank_r", 15,
              "in step s rank r sends part r-1-s, and adds what it receives to part r-2-s",
              call("reduce_scatter", example_group(3, 6)), judge_reduce_scatter),
      visible("reduce_scatter_sends_n_minus_1_messages", 5,
              "after n-1 steps part r has collected all values: one more is a message too many",
              call("reduce_scatter", example_group(4, 8)), judge_half_messages),
      visible("all_gather_spreads_every_part", 15,
              "in step s rank r sends part r-s, and overwrites part r-1-s with what it receives",
              call("all_gather", example_group(3, 6)), judge_all_gather),
      visible("all_gather_sends_n_minus_1_messages", 5,
              "a part travels from rank to rank n-1 times, and is then everywhere",
              call("all_gather", example_group(4, 8)), judge_half_messages),
      visible("all_ranks_hold_the_sum", 10,
              "both halves have n-1 steps, and all_gather begins with the part that is finished",
              call("ring_all_reduce", example_group(4, 8)), judge_sums),
      hidden(
          "drawn_uneven_sizes", 20,
          "parts differ in size where n does not divide the buffer: take the size from part_of", 4,
          [](lockstep::Rng& rng) {
            const std::size_t n = draw_between(rng, 3, 7);
            const std::size_t left = draw_between(rng, 1, n - 1);
            return call("ring_all_reduce", draw_group(rng, n, n * draw_between(rng, 2, 9) + left));
          },
          judge_sums),
      {"fewer_elements_than_ranks", Shown::hidden, 10,
       "a part may be empty; every rank still goes through all steps, so that no rank waits for "
       "ever",
       [](lockstep::Rng& rng) {
         const std::size_t n = draw_between(rng, 4, 8);
         return std::vector<json>{call("ring_all_reduce", draw_group(rng, n, n - 2)),
                                  call("ring_all_reduce", draw_group(rng, 1, n))};
       },
       judge_sums},
      hidden(
          "one_part_to_the_right_in_each_step", 20,
          "a ring that sends whole buffers, or to other ranks, has the right sum and none of the "
          "gain",
          1,
          [](lockstep::Rng& rng) {
            const std::size_t n = draw_between(rng, 3, 8);
            return call("ring_all_reduce", draw_group(rng, n, n * draw_between(rng, 2, 9)));
          },
          judge_ring_sums_and_messages)};
  return lab;
}

}  // namespace lab
