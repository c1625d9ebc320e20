#include "tutorials/labs/judging/group_answer.h"

#include <fmt/format.h>

#include <utility>

#include "engine/plan/collective_plan.h"

namespace lab {
namespace {

// One of a buffer's num_parts even parts.
Numbers part(const Numbers& buffer, std::size_t num_parts, std::size_t index) {
  const lockstep::plan::Chunk chunk = lockstep::plan::even_chunk(buffer.size(), num_parts, index);
  const auto begin = buffer.begin() + static_cast<std::ptrdiff_t>(chunk.offset);
  return {begin, begin + static_cast<std::ptrdiff_t>(chunk.count)};
}

}  // namespace

GroupAnswer read_group_answer(const json& answer) {
  GroupAnswer result;
  answer.at("buffers").get_to(result.buffers);
  for (const json& message : answer.at("messages")) {
    result.messages.push_back({message.at(0), message.at(1), message.at(2), message.at(3)});
  }
  return result;
}

json draw_group(lockstep::Rng& rng, std::size_t world_size, std::size_t num_elements) {
  std::vector<Numbers> buffers;
  for (std::size_t rank = 0; rank < world_size; ++rank) {
    buffers.push_back(draw_whole_numbers(rng, num_elements));
  }
  return json{{"buffers", std::move(buffers)}};
}

json example_group(std::size_t world_size, std::size_t num_elements) {
  std::vector<Numbers> buffers(world_size, Numbers(num_elements));
  for (std::size_t rank = 0; rank < world_size; ++rank) {
    for (std::size_t i = 0; i < num_elements; ++i) {
      buffers[rank][i] = static_cast<double>(10 * rank + i + 1);
    }
  }
  return json{{"buffers", std::move(buffers)}};
}

json call(const char* function, json group) {
  group["call"] = function;
  return group;
}

std::vector<Numbers> buffers_of(const json& inputs) {
  return inputs.at("buffers").get<std::vector<Numbers>>();
}

Numbers sum_of(const std::vector<Numbers>& buffers) {
  Numbers sum(buffers.at(0).size());
  for (const Numbers& buffer : buffers) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += buffer[i];
  }
  return sum;
}

std::string judge_sums(const json& inputs, const json& answer) {
  const std::vector<Numbers> buffers = buffers_of(inputs);
  const Numbers sum = sum_of(buffers);
  const GroupAnswer found = read_group_answer(answer);
  for (std::size_t rank = 0; rank < buffers.size(); ++rank) {
    const std::string what = fmt::format("{}: rank {}", counted(buffers.size(), "rank"), rank);
    const std::string wrong = differ(what, sum, found.buffers.at(rank));
    if (!wrong.empty()) return wrong;
  }
  return {};
}

std::string judge_reduce_scatter(const json& inputs, const json& answer) {
  const std::vector<Numbers> buffers = buffers_of(inputs);
  const Numbers sum = sum_of(buffers);
  const GroupAnswer found = read_group_answer(answer);
  for (std::size_t rank = 0; rank < buffers.size(); ++rank) {
    const Numbers& buffer = found.buffers.at(rank);
    if (buffer.size() != sum.size()) return fmt::format("rank {}: the buffer's size", rank);
    const std::string wrong =
        differ(fmt::format("reduce_scatter: part {0} on rank {0}", rank),
               part(sum, buffers.size(), rank), part(buffer, buffers.size(), rank));
    if (!wrong.empty()) return wrong;
  }
  return {};
}

std::string judge_all_gather(const json& inputs, const json& answer) {
  const std::vector<Numbers> buffers = buffers_of(inputs);
  Numbers whole;
  for (std::size_t rank = 0; rank < buffers.size(); ++rank) {
    const Numbers own = part(buffers[rank], buffers.size(), rank);
    whole.insert(whole.end(), own.begin(), own.end());
  }
  const GroupAnswer found = read_group_answer(answer);
  for (std::size_t rank = 0; rank < buffers.size(); ++rank) {
    const std::string wrong =
        differ(fmt::format("all_gather: rank {}", rank), whole, found.buffers.at(rank));
    if (!wrong.empty()) return wrong;
  }
  return {};
}

}  // namespace lab
