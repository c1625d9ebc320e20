// The activations (kernels/activation_formulas.h) with CUDA's exp, tanh and erfc.
#pragma once

#include <utility>

#include "kernels/activation_formulas.h"
#include "kernels/cuda/math.cuh"

namespace lockstep::kernels::cuda {

struct CudaMath {
  template <typename T>
  __host__ __device__ static T exp(T x) {
    return exp_of(x);
  }
  template <typename T>
  __host__ __device__ static T tanh(T x) {
    return tanh_of(x);
  }
  template <typename T>
  __host__ __device__ static T normal_distribution(T x) {
    return normal_distribution_of(x);
  }
};

// Calls function(functor) with the functor of an activation.
template <typename Function>
void for_activation(Activation activation, Function&& function) {
  for_activation_with<CudaMath>(activation, std::forward<Function>(function));
}

}  // namespace lockstep::kernels::cuda
