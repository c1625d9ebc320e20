// The linear layer, whose input may be the patches of images: then it is a convolution.
#pragma once

#include "kernels/cpu/gemm.h"

namespace lockstep::kernels {

// call.y = activation(x * call.weight^T + call.bias), where x [y.rows, weight.cols] takes the place
// of call.x. Bias and activation are applied to each part of the product while it is in the cache.
template <typename T>
void linear_forward(Stream& stream, const Factor<T>& x, const LinearForward& call);

extern template void linear_forward(Stream&, const Factor<float>&, const LinearForward&);
extern template void linear_forward(Stream&, const Factor<double>&, const LinearForward&);

}  // namespace lockstep::kernels
