// Enqueueing a product.
#pragma once

#include "kernels/cuda/product_plan.h"

namespace lockstep::kernels::cuda {

enum class Launched { yes, refused };
// Enqueues the product, then what the epilogue leaves to do. `refused`: the library does not run
// this algorithm on these addresses.
Launched try_launch(Stream& stream, const Product& product, const ProductPlan& plan);

}  // namespace lockstep::kernels::cuda
