#include "pipeline_schedule.h"

#include <algorithm>

#include "lab.h"

namespace lab {

std::vector<Work> gpipe(std::size_t, std::size_t, std::size_t num_micro_batches) {
  std::vector<Work> works;
  for (std::size_t i = 0; i < num_micro_batches; ++i) works.push_back({Pass::forward, i});
  for (std::size_t i = 0; i < num_micro_batches; ++i) works.push_back({Pass::backward, i});
  return works;
}

std::size_t num_ahead(std::size_t stage, std::size_t num_stages, std::size_t num_micro_batches) {
  // SOLUTION begin: num_ahead: return one for each stage behind this one, or all micro-batches
  return std::min(num_stages - 1 - stage, num_micro_batches);
  // SOLUTION end
}

std::vector<Work> turns(std::size_t num_ahead, std::size_t num_micro_batches) {
  std::vector<Work> works;
  // SOLUTION begin: turns: for each micro-batch add the next forward pass, as long as there is one
  // left, then its backward pass
  for (std::size_t i = 0; i < num_micro_batches; ++i) {
    if (num_ahead + i < num_micro_batches) works.push_back({Pass::forward, num_ahead + i});
    works.push_back({Pass::backward, i});
  }
  // SOLUTION end
  return works;
}

std::vector<Work> one_forward_one_backward(std::size_t stage, std::size_t num_stages,
                                           std::size_t num_micro_batches) {
  const std::size_t ahead = num_ahead(stage, num_stages, num_micro_batches);
  std::vector<Work> works;
  for (std::size_t i = 0; i < ahead; ++i) works.push_back({Pass::forward, i});
  for (const Work& work : turns(ahead, num_micro_batches)) works.push_back(work);
  return works;
}

}  // namespace lab
