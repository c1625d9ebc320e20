#include "tools/run/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

#include "engine/core/error.h"
#include "kernels/matmul_precision.h"

namespace lockstep::tools {

KeptTensors keep(const nn::StateDict& tensors) {
  KeptTensors kept;
  for (const auto& [name, tensor] : tensors) kept.emplace_back(name, tensor.to_vector<double>());
  return kept;
}

KeptTensors keep_buffers(const nn::Module& module) {
  return keep(module.named_buffers());
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

std::uint64_t digest(const std::vector<double>& values) {
  std::uint64_t hash = values.size();
  for (const double value : values) {
    hash = (hash ^ std::bit_cast<std::uint64_t>(value)) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
  }
  return hash;
}

std::vector<double> one_bit_off(std::vector<double> values, DType dtype) {
  const bool is_bf16 = kernels::matmul_precision() == kernels::MatmulPrecision::bf16;
  const double bit = dtype == DType::float64 ? 0x1p-52 : is_bf16 ? 0x1p-16 : 0x1p-23;
  for (std::uint64_t i = 0; i < values.size(); ++i) {
    const bool is_up = ((i + 1) * 0x9e3779b97f4a7c15) >> 63;  // as good as drawn
    values[i] *= is_up ? 1 + bit : 1 - bit;
  }
  return values;
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

namespace {

bool is_statistic(const std::string& name) {
  return name.ends_with("running_mean") || name.ends_with("running_var") ||
         name.ends_with("num_batches_tracked");
}

}  // namespace

KeptTensors parameters_of(const KeptTensors& state) {
  KeptTensors parameters;
  std::ranges::copy_if(state, std::back_inserter(parameters),
                       [](const auto& named) { return !is_statistic(named.first); });
  return parameters;
}

KeptTensors statistics_of(const KeptTensors& state, const KeptTensors& scale) {
  KeptTensors statistics;
  for (const auto& [name, values] : state) {
    if (!is_statistic(name)) continue;
    double largest = 1;
    for (const double value : values_of(scale, name)) largest = std::max(largest, std::abs(value));
    std::vector<double>& scaled = statistics.emplace_back(name, values).second;
    for (double& value : scaled) value /= largest;
  }
  return statistics;
}

StateDistance distance(const KeptTensors& expected, const KeptTensors& found) {
  return {largest_difference(parameters_of(expected), parameters_of(found)),
          largest_difference(statistics_of(expected, expected), statistics_of(found, expected))};
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
