// Activations and their derivatives of one element.
//
// forward(x) is the value; backward(saved, grad) is grad times the derivative, where saved is x for
// GELU and the value forward(x) for the others (needs_preactivation in kernels/backend.h).
// The formulas are those of kernels/cpu/activation.h, with CUDA's exp, tanh and erfc (2 ulp).
#pragma once

#include <cmath>

#include "kernels/backend.h"

namespace lockstep::kernels::cuda {

__device__ inline float exp_of(float x) {
  return expf(x);
}
__device__ inline double exp_of(double x) {
  return exp(x);
}
__device__ inline float tanh_of(float x) {
  return tanhf(x);
}
__device__ inline double tanh_of(double x) {
  return tanh(x);
}
// The distribution function of the normal distribution.
__device__ inline float normal_distribution_of(float x) {
  return 0.5f * erfcf(x * -0.707106781186547524f);
}
__device__ inline double normal_distribution_of(double x) {
  return 0.5 * erfc(x * -0.707106781186547524400844);
}

struct Identity {
  template <typename T>
  __device__ static T forward(T x) {
    return x;
  }
  template <typename T>
  __device__ static T backward(T, T grad) {
    return grad;
  }
};

struct Relu {
  template <typename T>
  __device__ static T forward(T x) {
    return x <= T(0) ? T(0) : x;  // a NaN stays one
  }
  // 0 where the value is not positive, whatever the gradient; where it is NaN, the gradient.
  template <typename T>
  __device__ static T backward(T y, T grad) {
    return y <= T(0) ? T(0) : grad;
  }
};

struct Tanh {
  template <typename T>
  __device__ static T forward(T x) {
    return tanh_of(x);
  }
  template <typename T>
  __device__ static T backward(T y, T grad) {
    return grad * (T(1) - y * y);
  }
};

struct Sigmoid {
  template <typename T>
  __device__ static T forward(T x) {
    return T(1) / (T(1) + exp_of(-x));
  }
  template <typename T>
  __device__ static T backward(T y, T grad) {
    return grad * (y * (T(1) - y));
  }
};

// x * Phi(x), Phi the distribution function of the normal distribution.
struct GeluErf {
  template <typename T>
  __device__ static T forward(T x) {
    return x * normal_distribution_of(x);
  }
  template <typename T>
  __device__ static T backward(T x, T grad) {
    const T density = T(0.398942280401432677939946) * exp_of(T(-0.5) * x * x);
    return grad * (normal_distribution_of(x) + x * density);
  }
};

// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
struct GeluTanh {
  template <typename T>
  __device__ static T forward(T x) {
    return T(0.5) * x * (T(1) + tanh_of(inner(x)));
  }
  template <typename T>
  __device__ static T backward(T x, T grad) {
    const T t = tanh_of(inner(x));
    const T slope = T(kFactor) * (T(1) + T(3 * 0.044715) * x * x);
    return grad * (T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * slope);
  }

 private:
  static constexpr double kFactor = 0.797884560802865355879892;  // sqrt(2/pi)
  template <typename T>
  __device__ static T inner(T x) {
    return T(kFactor) * (x + T(0.044715) * x * x * x);
  }
};

// Calls function(functor) with the functor of an activation.
template <typename Function>
void for_activation(Activation activation, Function&& function) {
  switch (activation) {
    case Activation::none:
      return function(Identity{});
    case Activation::relu:
      return function(Relu{});
    case Activation::gelu_erf:
      return function(GeluErf{});
    case Activation::gelu_tanh:
      return function(GeluTanh{});
    case Activation::tanh:
      return function(Tanh{});
    case Activation::sigmoid:
      return function(Sigmoid{});
  }
}

}  // namespace lockstep::kernels::cuda
