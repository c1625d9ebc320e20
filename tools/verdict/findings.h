// What the checks of a run found: plain values that travel from a training loop to the table.
//
//   rows          every rank trained on its part of the global batch, each row once
//   gradients     on the same weights and rows, the parallel gradient is one device's
//   replicas      all ranks hold the same weights and buffers, bit for bit
//   first steps   after the first steps the weights are still those of one device
//
// The first three compare like with like inside a run (rank_checks.h). The fourth compares two runs
// and is judged by who has both (verdict.h).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tools/verdict/kept_tensors.h"

namespace lockstep::tools {

enum class Checks { off, on };

// After so many steps the weights are kept, to be compared with one device's.
inline constexpr std::size_t kFirstSteps = 20;

// One comparison of all ranks' gradients with one device's.
struct GradientCheck {
  std::size_t step = 0;
  double max_relative_error = 0;  // over ranks and parameters
};

// A check that failed.
struct Finding {
  std::string check;  // "gradients"
  std::size_t step = 0;
  int rank = 0;
  std::string parameter;  // where it shows most
  std::string what;       // "relative error 0.31, limit 1e-05, ..."

  // "gradients: step 0, rank 2, parameter 0.weight: relative error 0.31, limit 1e-05, ..."
  std::string text() const;
};

// Of one run, on rank 0.
struct RunFindings {
  std::size_t num_first_steps = 0;  // kFirstSteps, or all if there were fewer
  KeptTensors first_weights;        // after them
  std::vector<GradientCheck> gradient_checks;
  double gradient_limit = 0;
  std::optional<Finding> failure;              // the first one
  std::vector<std::size_t> peak_bytes_before;  // of rank 0's devices, without the checks' own
};

// Throws Error{Numeric} with the failed check if a loss is not finite: that is what it led to.
void throw_failure(const RunFindings& findings, double loss);

}  // namespace lockstep::tools
