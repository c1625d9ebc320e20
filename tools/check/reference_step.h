// The shortest way to make a training step: one device, a plain model, no wrapper, no loader, and
// the rules written down here once more. The engine's step is compared with it.
//
// How far apart may two gradients be that compute the same? A gradient is a sum over rows. Computed
// in two orders, in a floating type whose rounding error is u, the sums differ by a small multiple
// of u times the size of the terms, not of the sum itself. At the end of training, or with a large
// batch, the rows' gradients nearly cancel, and an error relative to the sum would blame the engine
// for rounding. So the batch is cut at random into eight pieces, and the error of parameter p is
// relative to the sizes (Euclidean norms) of their gradients:
//
//   error(p) = |found - reference| / (|piece 0| + ... + |piece 7|)
//
// The denominator is at least the norm of the reference, and equals it while the rows agree. When
// they cancel it stays at about sqrt(8) times the root of the sum of their squared norms: random
// pieces do not all cancel by chance, not even in a parameter of one element. Each parameter is
// judged by itself, so that an error in one small bias cannot hide behind a large matrix.
// Source: N. Higham, Accuracy and Stability of Numerical Algorithms, 4.2: |error of a sum| <=
// gamma(n-1) * (sum of absolute values).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/core/device.h"
#include "engine/core/dtype.h"
#include "kernels/matmul_precision.h"
#include "tools/check/rules.h"
#include "tools/run/findings.h"
#include "tools/run/task.h"

namespace lockstep::tools {

// One device's gradient.
struct ReferenceGradient {
  KeptTensors values;         // one for each parameter
  std::vector<double> sizes;  // the denominators above
  double mean_loss = 0;
  KeptTensors statistics = {};  // batch norm's running ones after the first device's rows
};

double norm(const std::vector<double>& values);  // Euclidean

// Rows of the data set in an epoch, whichever rank trains on them: features and labels, row by row.
struct PlainBatch {
  std::vector<double> features;
  std::vector<std::int64_t> labels;
};
PlainBatch plain_batch(const TrainingTask& task, std::size_t epoch,
                       std::span<const std::size_t> rows);

// The fraction of the test rows that a model with this state gets right or, for a text, the mean
// loss over its tokens.
double test_result(const TrainingTask& task, Device device, const KeptTensors& state);

// The gradient of the mean loss over these rows of the data set in that step, at these weights and
// running statistics, with that step's dropout masks, in the task's dtype on `device`; clipped if
// the task says so. The loss is scaled before backward as num_ranks ranks scale it, so that it
// rounds as theirs does. On a GPU the bits of a row depend on the number of rows, so the gradient
// is computed in pieces of rows_of_device rows: as many as one of the parallel run's devices gets
// at a time. The same holds for batch norm, whose statistics come from the rows of one device: the
// pieces are the devices' shards, in order. With --sync-batch-norm all rows are one piece.
ReferenceGradient reference_gradient(const TrainingTask& task, Device device,
                                     const KeptTensors& state, std::size_t step,
                                     const std::vector<std::size_t>& rows,
                                     std::size_t rows_of_device, std::size_t num_ranks);

// A gradient or a running statistic beside one device's.
struct TensorError {
  const char* check;  // "gradients" or "statistics"
  std::string name;
  double error = 0;
  double limit = 0;

  bool is_beyond() const { return !(error <= limit); }
};

// The error of each tensor. A gradient's error(p) is 0 if nothing differs; infinite if the
// reference is zero and the found gradient is not, or if a parameter has no gradient (no values);
// NaN if any value is. A statistic's is the largest difference over the largest value, or over 1.
std::vector<TensorError> errors_of(const KeptTensors& gradients, const KeptTensors& statistics,
                                   const ReferenceGradient& reference, double limit);

// PyTorch's rule for running statistics: 0.9 of the old ones stay, and the count grows by one. The
// first that breaks it, by a reference from the state before the step and one from statistics that
// are larger by 1; empty if none does.
std::string statistic_against_the_rule(const KeptTensors& before, const ReferenceGradient& after,
                                       const ReferenceGradient& after_larger);

// Adds to each limit many times what the reference changes if it starts one bit off: rounding can
// do as much where a training amplifies it, as batch norm over very few values does.
void allow_amplified(std::vector<TensorError>& errors, const ReferenceGradient& reference,
                     const ReferenceGradient& one_bit_off);
inline constexpr double kTimesOneBit = 100;

// The limit of an error: float64 1e-12, float32 1e-5. On the CPU a row's activations have the same
// bits in every batch (kernels/cpu/gemm.h), so only the order of sums differs, also where products
// round their inputs to bfloat16: the reference rounds the same numbers. On a GPU a product's
// algorithm, and with it the bits of its rows, depends on its shape: a sum may fall on the other
// side of ReLU's kink, and inputs are rounded to TF32 or bfloat16 once more between layers. There
// the limits are 1e-3 (highest), 1e-2 (high) and 3e-2 (medium, bfloat16) for float32, and 1e-9 for
// float64. A wrong plan errs by much more: by the share of a rank, bucket or chunk.
double gradient_limit(DType dtype, DeviceType device, kernels::MatmulPrecision precision);

// Follows a parameter's name in that of its optimizer's state: " momentum", " moment 1".
std::string state_suffix(const OptimizerSettings& settings, std::size_t index);

// An element that is not what the optimizer's formula makes of it.
struct WrongElement {
  std::string tensor;  // the parameter, or what its optimizer keeps for it
  double expected = 0;
  double found = 0;
};

// The first such element of a parameter after a step: the formula (rules.h) gets the run's own
// state and gradients. Without a gradient (no values) the parameter must stay as it is.
std::optional<WrongElement> find_wrong_element(
    const OptimizerSettings& settings, const rules::Step& step, const std::string& parameter,
    const KeptTensors& before, const KeptTensors& gradients, const KeptTensors& after);

}  // namespace lockstep::tools
