// The algorithms that timing has chosen, kept from one run to the next in a file of the user's
// cache: $XDG_CACHE_HOME/lockstep, or ~/.cache/lockstep. Each GPU model, driver and version of
// cuBLASLt has a file of its own, whose first line names them.
//
// A file that cannot be read, is damaged, or begins with another line counts as none, and a folder
// that cannot be written keeps none; the log says so at level debug. It is replaced whole, so
// processes may read and write it at any time; if two write at once, one of them may lose its last
// product, which the next run times again.
#pragma once

#include <map>

#include "kernels/cuda/product_plans.h"

namespace lockstep::kernels::cuda {

// The products of GPUs of this one's model, by key_of() with model_of() as the GPU; empty without a
// file.
std::map<ProductKey, Plan> read_products(int gpu);

// Adds products to the file.
void keep_products(int gpu, const std::map<ProductKey, Plan>& products);

}  // namespace lockstep::kernels::cuda
