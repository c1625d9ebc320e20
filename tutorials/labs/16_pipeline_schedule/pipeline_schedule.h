// Lab 16: the 1F1B schedule. README.md says what is to be done.
#pragma once

#include <cstddef>
#include <vector>

namespace lab {

enum class Pass { forward, backward };

// One piece of work of a stage.
struct Work {
  Pass pass = Pass::forward;
  std::size_t micro_batch = 0;
};

// The work of one stage of `num_stages`, in order: each of num_micro_batches forward and backward.
// gpipe: all forward passes, then all backward passes.
std::vector<Work> gpipe(std::size_t stage, std::size_t num_stages, std::size_t num_micro_batches);
// How many forward passes a stage does ahead: one for each stage behind it, but no more than there
// are micro-batches.
std::size_t num_ahead(std::size_t stage, std::size_t num_stages, std::size_t num_micro_batches);
// The passes after those ahead: for each micro-batch the next forward pass, as long as there is one
// left, then its backward pass.
std::vector<Work> turns(std::size_t num_ahead, std::size_t num_micro_batches);
// As many forward passes ahead as there are stages behind this one, then one forward and one
// backward in turn, then the backward passes that are left.
std::vector<Work> one_forward_one_backward(std::size_t stage, std::size_t num_stages,
                                           std::size_t num_micro_batches);

}  // namespace lab
