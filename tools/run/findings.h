// The findings of a run's checks, as plain values that travel from a training loop to the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/nn/state_dict.h"
#include "tools/run/losses.h"

namespace lockstep::tools {

// Values of tensors at some moment of a run, kept outside any device's memory: by name, in the
// order of the state dict. A double holds every float32 and float64 exactly.
using KeptTensors = std::vector<std::pair<std::string, std::vector<double>>>;

KeptTensors keep(const nn::StateDict& tensors);

KeptTensors keep_buffers(const nn::Module& module);

// REQUIRES: a tensor of this name.
const std::vector<double>& values_of(const KeptTensors& tensors, const std::string& name);

// Turns them into float64 vectors on the CPU, for a file.
nn::StateDict to_state_dict(const KeptTensors& tensors);

// Each value off by one bit of the dtype, up or down. Where products round to bfloat16, 128 bits:
// a few of them then round to another number there.
std::vector<double> one_bit_off(std::vector<double> values, DType dtype);

// The same bits have the same digest.
std::uint64_t digest(const std::vector<double>& values);

// The tensor where two runs differ most, and by how much; a NaN is the largest difference.
struct LargestDifference {
  std::string name;
  double value = 0;
};
// REQUIRES: same names and sizes.
LargestDifference largest_difference(const KeptTensors& a, const KeptTensors& b);

// A model's parameters, and its batch norms' running statistics, from a state dict's names. Each
// statistic is divided by its largest value in `scale`, or 1 if that is larger: channels may have
// any size.
KeptTensors parameters_of(const KeptTensors& state);
KeptTensors statistics_of(const KeptTensors& state, const KeptTensors& scale);

// The distance between the states of two runs.
struct StateDistance {
  LargestDifference parameters;
  LargestDifference statistics;  // relative to their size in `expected`
};
StateDistance distance(const KeptTensors& expected, const KeptTensors& found);

enum class Checks { off, on };

// After so many steps the weights are kept, and later compared with one device's.
inline constexpr std::size_t kFirstSteps = 20;

// One step whose gradients were compared with one device's.
struct GradientCheck {
  std::size_t step = 0;
  double max_relative_error = 0;  // over parameters and running statistics
  // Those beyond the limit, but within many times what one bit changes
  // (reference_step.h).
  std::size_t num_amplified = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GradientCheck, step, max_relative_error, num_amplified)

// A check that failed.
struct Finding {
  std::string check;  // "gradients"
  std::size_t step = 0;
  int rank = 0;
  std::string parameter;  // where it shows most; "all" if it concerns no single parameter
  std::string what;       // "relative error 0.31, limit 1e-05, ..."

  // "gradients: step 0, rank 2, parameter 0.weight: relative error 0.31, limit 1e-05, ..."
  std::string text() const;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Finding, check, step, rank, parameter, what)

// The findings of one run, on rank 0.
struct RunFindings {
  std::size_t num_first_steps = 0;  // kFirstSteps, or all steps if there were fewer
  KeptTensors first_weights;        // after them
  double first_movement = 0;        // the most that a weight changed in them
  double movement = 0;              // the same over the whole run
  // The run should return this: the state after the last judged step, by digest, and what follows
  // from all ranks' rows.
  std::vector<std::pair<std::string, std::uint64_t>> last_state;
  ThinnedLosses losses;
  std::optional<double> test_result;  // accuracy or, of a text, mean loss; absent without test rows
  std::vector<GradientCheck> gradient_checks;
  double gradient_limit = 0;
  std::optional<Finding> failure;  // the first one
  // Why steps from some point on say nothing about the engine: "the loss exploded: ..."; or empty.
  std::string exploded;
};

// Throws Error{Numeric} if a loss is not finite, with the failed check that led to it, if any.
void throw_failure(const RunFindings& findings, double loss);

}  // namespace lockstep::tools
