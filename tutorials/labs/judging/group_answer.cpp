#include "tutorials/labs/judging/group_answer.h"

#include <fmt/format.h>

#include <utility>

namespace lab {

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
    const std::string what = fmt::format("{} ranks: rank {}", buffers.size(), rank);
    const std::string wrong = differ(what, sum, found.buffers.at(rank));
    if (!wrong.empty()) return wrong;
  }
  return {};
}

}  // namespace lab
