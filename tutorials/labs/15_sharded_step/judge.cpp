#include <fmt/format.h>

#include "engine/plan/collective_plan.h"
#include "tutorials/labs/judging/group_answer.h"

namespace lab {
namespace {

using lockstep::plan::even_chunk;

constexpr double kLearningRate = 0.5;

json draw_step(lockstep::Rng& rng, std::size_t world_size, std::size_t num_elements) {
  json step = call("sharded_step", draw_group(rng, world_size, num_elements));
  step["weights"] = draw_whole_numbers(rng, num_elements);
  step["learning_rate"] = kLearningRate;
  return step;
}

json example_step() {
  json step = call("sharded_step", example_group(2, 4));
  step["weights"] = Numbers{1, 2, 3, 4};
  step["learning_rate"] = kLearningRate;
  return step;
}

std::string judge_step(const json& inputs, const json& answer) {
  const std::vector<Numbers> buffers = buffers_of(inputs);
  const Numbers sum = sum_of(buffers);
  auto weights = inputs.at("weights").get<Numbers>();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] -= kLearningRate * sum[i] / static_cast<double>(buffers.size());
  }
  const GroupAnswer found = read_group_answer(answer);
  for (std::size_t rank = 0; rank < buffers.size(); ++rank) {
    const std::string what =
        fmt::format("{}: weights of rank {}", counted(buffers.size(), "rank"), rank);
    const std::string wrong = differ(what, weights, found.buffers.at(rank), 1e-9);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

// Every rank sends so many elements to every other, without having waited for any.
std::string judge_direct_messages(const json& inputs, const json& answer) {
  const std::vector<Numbers> buffers = buffers_of(inputs);
  const std::size_t n = buffers.size();
  const bool scatters = inputs.at("call") == "reduce_scatter";
  std::vector<std::size_t> sent(n * n);  // elements, by sender and receiver
  for (const SentMessage& message : read_group_answer(answer).messages) {
    const auto from = static_cast<std::size_t>(message.from);
    sent[from * n + static_cast<std::size_t>(message.to)] += message.num_elements;
    if (message.step > 1) {
      return fmt::format("rank {} sends to rank {} after it has received, expected one step",
                         message.from, message.to);
    }
  }
  for (std::size_t from = 0; from < n; ++from) {
    for (std::size_t to = 0; to < n; ++to) {
      const std::size_t own = even_chunk(buffers[0].size(), n, scatters ? to : from).count;
      const std::size_t expected = from == to ? 0 : own;
      if (sent[from * n + to] == expected) continue;
      return fmt::format("{}: rank {} sends {} elements to rank {}, expected {}",
                         inputs.at("call").get<std::string>(), from, sent[from * n + to], to,
                         expected);
    }
  }
  return {};
}

}  // namespace

Lab sharded_step_lab() {
  Lab lab{"15_sharded_step", "Reduce-scatter, step, all-gather", {}};
  lab.checks = {
      visible("reduce_scatter_sums_shard_r_on_rank_r", 15,
              "rank r receives its own shard from every other rank, and adds what it has itself",
              call("reduce_scatter", example_group(3, 6)), judge_reduce_scatter),
      visible("all_gather_spreads_every_shard", 15,
              "shard j comes from rank j, and goes where shard j lies in the buffer",
              call("all_gather", example_group(3, 6)), judge_all_gather),
      visible("a_step_is_that_of_the_mean_gradient", 20,
              "divide the sum by the number of ranks; gather the weights, not the gradients",
              example_step(), judge_step),
      hidden(
          "drawn_uneven_sums", 15,
          "shards differ in size where n does not divide the buffer: take the size from shard_of",
          4,
          [](lockstep::Rng& rng) {
            const std::size_t n = draw_between(rng, 3, 7);
            const std::size_t left = draw_between(rng, 1, n - 1);
            return call("all_reduce", draw_group(rng, n, n * draw_between(rng, 2, 9) + left));
          },
          judge_sums),
      {"drawn_steps_of_any_size", Shown::hidden, 15,
       "an empty shard has nothing to update; a single rank has no peer to send to",
       [](lockstep::Rng& rng) {
         const std::size_t n = draw_between(rng, 4, 8);
         return std::vector<json>{draw_step(rng, n, 3 * n + 1), draw_step(rng, n, n - 2),
                                  draw_step(rng, 1, n)};
       },
       judge_step},
      {"each_shard_goes_once_to_whom_it_serves", Shown::hidden, 20,
       "whole buffers have the right sum, and none of the gain; send all before you receive",
       [](lockstep::Rng& rng) {
         const std::size_t n = draw_between(rng, 3, 8);
         const std::size_t size = n * draw_between(rng, 2, 9) + 1;
         return std::vector<json>{call("reduce_scatter", draw_group(rng, n, size)),
                                  call("all_gather", draw_group(rng, n, size))};
       },
       judge_direct_messages}};
  return lab;
}

}  // namespace lab
