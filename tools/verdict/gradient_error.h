// How far a gradient may be from another that computes the same, and how far it is.
//
// A gradient is a sum over rows. Computed in two orders, in a floating type whose rounding error is
// u, the two sums differ by a small multiple of u times the size of what was added up, and not of
// the sum itself: at the end of training, or with a large batch, the rows' gradients all but
// cancel, and an error that is relative to the sum would blame rounding on the engine. So the batch
// is cut into eight pieces at random, and the error is relative to the sizes of their gradients:
//
//   error(p) = |found - reference| / (|piece 0| + ... + |piece 7|)   Euclidean norms, of parameter
//   p
//
// The denominator is at least the norm of the reference, and while the rows agree equal to it. When
// they cancel it stays at about sqrt(8) times the root of the sum of their squared norms: random
// pieces do not all cancel by chance, not even in a parameter of one element (two pieces do: of a
// thousand checks of a bias with two elements, some had halves near zero and errors up to 3e-4).
// Each parameter is judged by itself: an error in one small bias cannot hide behind a large matrix.
// What holds for every parameter holds for the whole gradient.
// Source: N. Higham, Accuracy and Stability of Numerical Algorithms, 4.2: |error of a sum| <=
// gamma(n-1) * (sum of absolute values).
#pragma once

#include <cstddef>
#include <vector>

#include "engine/core/device.h"
#include "engine/core/dtype.h"
#include "kernels/matmul_precision.h"

namespace lockstep::tools {

// One device's gradient, by parameter.
struct ReferenceGradient {
  std::vector<std::vector<double>> values;
  std::vector<double> sizes;  // the denominators above
};

// error(p) for every parameter. 0 where nothing differs; infinite where the reference is zero and
// what was found is not, or where a parameter has no gradient (no values); NaN if any value is.
std::vector<double> gradient_errors(const std::vector<std::vector<double>>& found,
                                    const ReferenceGradient& reference);

// What an error may be at most: float64 1e-12, float32 1e-5. On the CPU a row's activations have
// the same bits in every batch (kernels/cpu/gemm.h), so only the order of sums differs. On a GPU a
// product's algorithm, and with it the bits of its rows, depends on its shape: a sum may fall on
// the other side of ReLU's kink, and inputs are rounded to TF32 or bfloat16 once more between
// layers. There the limits are 1e-3 (highest), 1e-2 (high) and 3e-2 (medium) for float32, and 1e-9
// for float64. A plan that is wrong is off by the share of a rank, bucket or chunk.
double gradient_limit(DType dtype, DeviceType device, kernels::MatmulPrecision precision);

}  // namespace lockstep::tools
