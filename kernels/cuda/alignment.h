// How addresses and matrices are aligned, as far as the library's algorithms depend on it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/core/views.h"

namespace lockstep::kernels::cuda {

// The largest of 4, 8 and 16 that the number of bytes is a multiple of.
inline std::uint32_t alignment_of(std::uintptr_t num_bytes) {
  if (num_bytes % 16 == 0) return 16;
  return num_bytes % 8 == 0 ? 8 : 4;
}

inline std::uint32_t alignment_of(const void* data) {
  return alignment_of(reinterpret_cast<std::uintptr_t>(data));
}

// Of every row of every matrix.
inline std::uint32_t alignment_of(const ConstMatrixView& view) {
  const std::size_t size = size_of(view.dtype);
  std::uint32_t result =
      std::min(alignment_of(view.data), alignment_of(view.leading_dimension * size));
  if (view.batch > 1) result = std::min(result, alignment_of(view.batch_stride * size));
  return result;
}

}  // namespace lockstep::kernels::cuda
