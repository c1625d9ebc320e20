// Replicas are copies: at every step all ranks have the same weights, rate and statistics.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "tools/doctor/judges.h"

namespace lockstep::doctor {
namespace {

struct Difference {
  std::size_t rank = 0;
  std::size_t first = 0;  // parameter
  std::size_t count = 0;  // of parameters
};

// The first rank whose weights are not rank 0's before this step.
std::optional<Difference> find_difference(const Training& training, std::size_t number) {
  const StepRecord& zero = training.step(0, number);
  for (std::size_t rank = 1; rank < training.world_size(); ++rank) {
    const StepRecord& other = training.step(rank, number);
    Difference difference{rank, 0, 0};
    for (std::size_t p = 0; p < zero.parameters.size(); ++p) {
      if (zero.parameters[p].before == other.parameters[p].before) continue;
      if (difference.count++ == 0) difference.first = p;
    }
    if (difference.count > 0) return difference;
  }
  return {};
}

std::optional<Finding> judge_beginning(const Training& training, const Difference& difference) {
  const StepRecord& zero = training.step(0, 0);
  return Finding{
      "same-weights",
      fmt::format("before its first step rank {} has other weights than rank 0 in {} of {} "
                  "parameters, first in {}",
                  difference.rank, difference.count, zero.parameters.size(),
                  name_of(zero, difference.first)),
      "all ranks begin with the same weights, else the average of their gradients is the gradient "
      "of none of their models",
      "broadcast rank 0's weights before the first step (Ddp does so when it is made), and change "
      "none afterwards"};
}

// At the first step that made them differ, although gradients and rates were the same.
std::optional<Finding> judge_later(const Training& training, std::size_t number,
                                   const Difference& difference) {
  const StepRecord& zero = training.step(0, number);
  const StepRecord& before = training.step(0, number - 1);
  const StepRecord& other = training.step(difference.rank, number - 1);
  const bool had_same_gradients = std::ranges::equal(
      before.parameters, other.parameters, {}, &ParameterRecord::used, &ParameterRecord::used);
  if (!had_same_gradients || before.learning_rate != other.learning_rate) return {};
  return Finding{
      "same-weights",
      fmt::format("before step {} rank {} has other weights than rank 0 in {} of {} parameters, "
                  "first in {}; in the step before they were the same, and so were gradients and "
                  "learning rate",
                  zero.step, difference.rank, difference.count, zero.parameters.size(),
                  name_of(zero, difference.first)),
      "the same step on the same weights gives the same weights on all ranks",
      "options of the optimizers that differ between ranks, or code that writes weights on some "
      "ranks only"};
  return {};
}

std::optional<Finding> judge_rates(const Training& training) {
  for (std::size_t number = 0; number < training.num_steps(); ++number) {
    const double first = training.step(0, number).learning_rate;
    for (std::size_t rank = 1; rank < training.world_size(); ++rank) {
      const double other = training.step(rank, number).learning_rate;
      if (other == first) continue;
      return Finding{
          "same-rate",
          fmt::format("in step {} rank {} steps with learning rate {:g} and rank 0 with {:g}",
                      training.step(0, number).step, rank, other, first),
          "all ranks make the same step, so with one learning rate",
          "a rate that depends on the rank, or a variable that several ranks scale"};
    }
  }
  return {};
}

std::optional<Finding> judge_buffers(const Training& training) {
  for (std::size_t number = 0; number < training.num_steps(); ++number) {
    const std::vector<std::uint64_t>& first = training.step(0, number).buffers;
    for (std::size_t rank = 1; rank < training.world_size(); ++rank) {
      const std::vector<std::uint64_t>& other = training.step(rank, number).buffers;
      if (other == first || other.size() != first.size()) continue;
      return Finding{
          "same-buffers",
          fmt::format("in step {} the running statistics of {} layers enter forward on rank {} "
                      "with other values than on rank 0",
                      training.step(0, number).step, first.size(), rank),
          "buffers follow one rank, as the weights do, else each rank's model evaluates "
          "differently, and what is saved depends on who saves",
          "broadcast the buffers before each forward pass (DdpOptions::Buffers::broadcast), or "
          "before evaluating and saving"};
    }
  }
  return {};
}

std::optional<Finding> judge_equality(const Training& training) {
  for (std::size_t number = 0; number < training.num_steps(); ++number) {
    const std::optional<Difference> difference = find_difference(training, number);
    if (!difference) continue;
    return number == 0 ? judge_beginning(training, *difference)
                       : judge_later(training, number, *difference);
  }
  return {};
}

}  // namespace

void judge_weights(const std::vector<Training>& trainings, Findings& findings) {
  for (const Training& training : trainings) {
    if (!training.exchanges()) continue;
    add(judge_rates(training), findings);
    add(judge_buffers(training), findings);
    add(judge_equality(training), findings);
  }
}

}  // namespace lockstep::doctor
