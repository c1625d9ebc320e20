#include "tools/verdict/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/core/error.h"

namespace lockstep::tools {

KeptTensors keep(const nn::StateDict& tensors) {
  KeptTensors kept;
  for (const auto& [name, tensor] : tensors) kept.emplace_back(name, tensor.to_vector<double>());
  return kept;
}

const std::vector<double>& values_of(const KeptTensors& tensors, const std::string& name) {
  return std::ranges::find(tensors, name, &KeptTensors::value_type::first)->second;
}

nn::StateDict to_state_dict(const KeptTensors& tensors) {
  nn::StateDict state;
  for (const auto& [name, values] : tensors) {
    state.emplace_back(name, Tensor::from(values, {values.size()}, Device{}));
  }
  return state;
}

LargestDifference largest_difference(const KeptTensors& a, const KeptTensors& b) {
  LargestDifference largest;
  for (const auto& [name, values] : a) {
    const std::vector<double>& others = values_of(b, name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double difference = std::abs(values[i] - others[i]);
      if (difference <= largest.value) continue;
      largest = {name, difference};
      if (std::isnan(difference)) return largest;
    }
  }
  return largest;
}

std::string Finding::text() const {
  return fmt::format("{}: step {}, rank {}, parameter {}: {}", check, step, rank, parameter, what);
}

void throw_failure(const RunFindings& findings, double loss) {
  if (std::isfinite(loss) || !findings.failure) return;
  fail(ErrorCode::Numeric, "compare", "{}; then the loss was no longer finite",
       findings.failure->text());
}

}  // namespace lockstep::tools
