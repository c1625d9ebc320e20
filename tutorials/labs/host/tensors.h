// Between a check's JSON and the engine's tensors, float64 on the CPU.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "engine/autograd/variable.h"

namespace lab {

// [[1, 2], [3, 4]] as a matrix.
inline lockstep::Tensor matrix_of(const nlohmann::json& rows) {
  std::vector<double> values;
  for (const auto& row : rows) {
    for (const double value : row) values.push_back(value);
  }
  return lockstep::Tensor::from(values, {rows.size(), rows.at(0).size()});
}

inline lockstep::Tensor vector_of(const nlohmann::json& numbers) {
  return lockstep::Tensor::from(numbers.get<std::vector<double>>(), {numbers.size()});
}

inline lockstep::Variable leaf(lockstep::Tensor value) {
  return lockstep::Variable(std::move(value), lockstep::RequiresGrad::yes);
}

// All elements in a row; null where there is no tensor.
inline nlohmann::json numbers_of(const lockstep::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  return tensor.to_vector<double>();
}

}  // namespace lab
