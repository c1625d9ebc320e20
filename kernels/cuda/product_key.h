// When two products are the same one to whoever chooses their algorithm.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/cuda/product.h"

namespace lockstep::kernels::cuda {

// Everything that decides which algorithms a product has and how fast they are, and nothing else:
// sizes, strides, alignments, types, precision, finish; no addresses. Pointers count by whether
// they and the rows after them are aligned to 4, 8 or 16 bytes, so that a shard of a batch that
// begins at another row is the same product.
using ProductKey = std::array<std::int64_t, 21>;
ProductKey key_of(const Product& product);

}  // namespace lockstep::kernels::cuda
