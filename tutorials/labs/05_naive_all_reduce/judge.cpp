#include <fmt/format.h>

#include "tutorials/labs/judging/group_answer.h"
#include "tutorials/labs/judging/lab.h"

namespace lab {
namespace {

// Each other rank sends its buffer once, to rank 0, which sends the sum once to each.
std::string judge_messages(const json& inputs, const json& answer) {
  const std::vector<Numbers> buffers = buffers_of(inputs);
  const std::size_t world_size = buffers.size();
  const GroupAnswer found = read_group_answer(answer);
  if (found.messages.size() != 2 * (world_size - 1)) {
    return fmt::format("{}: expected {} messages, found {}", counted(world_size, "rank"),
                       2 * (world_size - 1), found.messages.size());
  }
  for (const SentMessage& message : found.messages) {
    if (message.from != 0 && message.to != 0) {
      return fmt::format("rank {} sends to rank {}: every message begins or ends at rank 0",
                         message.from, message.to);
    }
    if (message.num_elements != buffers[0].size()) {
      return fmt::format("rank {} sends {} elements to rank {}, expected the whole buffer of {}",
                         message.from, message.num_elements, message.to, buffers[0].size());
    }
  }
  return {};
}

std::string judge_sums_and_messages(const json& inputs, const json& answer) {
  const std::string wrong = judge_sums(inputs, answer);
  return wrong.empty() ? judge_messages(inputs, answer) : wrong;
}

}  // namespace

Lab naive_all_reduce_lab() {
  Lab lab{"05_naive_all_reduce", "Naive all-reduce: everything through rank 0", {}};
  lab.checks = {
      visible("rank_0_sends_the_sum_to_all", 20,
              "rank 0 adds what it receives to its own buffer, and sends only after the last one "
              "was added",
              call("rank_0", example_group(3, 3)), judge_sums),
      visible("other_ranks_get_the_sum", 10,
              "each sends its buffer to rank 0, and overwrites it with what comes back",
              call("others", example_group(3, 3)), judge_sums),
      visible("four_ranks_hold_the_sum", 10, "the sum goes to every rank", example_group(4, 3),
              judge_sums),
      visible("one_rank_keeps_its_buffer", 10,
              "a single rank has no peer to receive from or send to", example_group(1, 3),
              judge_sums_and_messages),
      hidden(
          "drawn_sums", 30,
          "loops go over world_size() ranks and buffer.size() elements, not over fixed numbers", 4,
          [](lockstep::Rng& rng) {
            const std::size_t world_size = draw_between(rng, 3, 8);
            return draw_group(rng, world_size, draw_between(rng, 5, 40));
          },
          judge_sums),
      hidden(
          "every_message_once", 20,
          "a buffer travels once to rank 0 and once back: 2 (n-1) messages, none between other "
          "ranks",
          1, [](lockstep::Rng& rng) { return draw_group(rng, draw_between(rng, 4, 7), 6); },
          judge_sums_and_messages)};
  return lab;
}

}  // namespace lab
