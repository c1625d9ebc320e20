// Checks of the labs whose submissions are the ranks of a group (host/group.h).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tutorials/labs/judging/values.h"

namespace lab {

struct SentMessage {
  int from = 0;
  int to = 0;
  std::size_t num_elements = 0;
  int step = 0;
};

struct GroupAnswer {
  std::vector<Numbers> buffers;  // indexed by rank
  std::vector<SentMessage> messages;
};

GroupAnswer read_group_answer(const json& answer);

// {"buffers": [...]} for so many ranks and elements, of whole numbers.
json draw_group(lockstep::Rng& rng, std::size_t world_size, std::size_t num_elements);
// Rank r's element i is 10 r + i + 1: to be followed by eye.
json example_group(std::size_t world_size, std::size_t num_elements);

// The same for one of the functions of a lab: {"call": its name, "buffers": [...]}.
json call(const char* function, json group);

std::vector<Numbers> buffers_of(const json& inputs);
Numbers sum_of(const std::vector<Numbers>& buffers);

// Empty if every rank holds the sum of all inputs; else says what is wrong.
std::string judge_sums(const json& inputs, const json& answer);
// Empty if part r of rank r holds the sum of all inputs' part r; or, for all-gather, if every rank
// holds each rank's own part.
std::string judge_reduce_scatter(const json& inputs, const json& answer);
std::string judge_all_gather(const json& inputs, const json& answer);

}  // namespace lab
