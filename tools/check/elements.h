// Elements of tensors, read without memory of their device, whose peak belongs to the run.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/tensor/tensor.h"

namespace lockstep::tools {

// So many elements of a tensor stand for all of them.
inline constexpr std::size_t kFewElements = 32;

// The place of the i-th of the few, of `size`: spread evenly, but not in step with any row length,
// because some columns of a weight have no gradient, such as those of pixels that are always dark.
// In another round the places are others.
std::size_t place_of_element(std::size_t i, std::size_t size, std::size_t round = 0);

// REQUIRES: a float32 or float64 tensor on the CPU.
double element_at(const Tensor& tensor, std::size_t place);

std::vector<double> all_elements(const Tensor& tensor);
std::vector<double> few_elements(const Tensor& tensor);  // all, if there are no more

bool same_bits(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace lockstep::tools
