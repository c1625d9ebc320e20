// The size of the blocks that a memory pool gives out.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>

namespace lockstep::runtime {

// Multiples of 64 up to 512 bytes, then eight sizes between one power of two and the next, so that
// at most 1/8 of a block is unused.
inline std::size_t block_size(std::size_t num_bytes) {
  if (num_bytes > std::size_t{1} << 60)
    return num_bytes;  // rounding up would overflow; no system has that much
  const std::size_t rounded = std::max<std::size_t>(num_bytes, 1);
  const std::size_t granule =
      rounded <= 512 ? 64 : std::max<std::size_t>(64, std::bit_floor(rounded - 1) / 8);
  return (rounded + granule - 1) / granule * granule;
}

}  // namespace lockstep::runtime
