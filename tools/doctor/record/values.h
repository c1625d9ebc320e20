// What is kept of a tensor's values: a hash that tells two apart, and a sketch of a gradient.
//
// A sketch is linear: that of a sum is the sum of the sketches, whatever the tensors' sizes, so who
// has the sketches of all ranks' gradients can say what the average must be. It is made of at most
// kNumSampled elements, always the same ones, so it costs microseconds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/core/views.h"

namespace lockstep::record {

inline constexpr std::size_t kSketchSize = 16;
inline constexpr std::size_t kNumSampled = 256;

using Sketch = std::array<double, kSketchSize>;

// The sums of the sampled elements with kSketchSize patterns of signs; zeros for no elements and
// for dtypes other than float32 and float64.
Sketch sketch_of(ConstTensorView values);
bool is_zero(const Sketch& sketch);

// Of all bytes up to 64 KiB; of larger tensors that of 8192 words spread over them and of their
// end. 0 for none.
std::uint64_t hash_of(ConstTensorView values);
// One hash for each row of `rows`.
std::vector<std::uint64_t> hash_rows(ConstTensorView values, std::size_t num_rows);

}  // namespace lockstep::record
