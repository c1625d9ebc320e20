// Activations and their derivatives of one element, as functors that loops inline, for hosts and
// devices.
//
// forward(x) is the value; backward(saved, grad) is grad times the derivative, where saved is x for
// GELU and the value forward(x) for the others (needs_preactivation in kernels/backend.h). Math is
// the backend's own class, with static functions exp, tanh and normal_distribution (Phi) of float
// and of double.
#pragma once

#include "engine/core/dtype.h"  // LOCKSTEP_HOST_DEVICE
#include "kernels/calls.h"

namespace lockstep::kernels {

struct Identity {
  template <typename T>
  LOCKSTEP_HOST_DEVICE static T forward(T x) {
    return x;
  }
  template <typename T>
  LOCKSTEP_HOST_DEVICE static T backward(T, T grad) {
    return grad;
  }
};

struct Relu {
  template <typename T>
  LOCKSTEP_HOST_DEVICE static T forward(T x) {
    return x <= T(0) ? T(0) : x;  // a NaN stays NaN, as in PyTorch
  }
  // 0 if the value is not positive, whatever the gradient; the gradient if the value is NaN.
  template <typename T>
  LOCKSTEP_HOST_DEVICE static T backward(T y, T grad) {
    return y <= T(0) ? T(0) : grad;
  }
};

template <typename Math>
struct Tanh {
  template <typename T>
  LOCKSTEP_HOST_DEVICE static T forward(T x) {
    return Math::tanh(x);
  }
  template <typename T>
  LOCKSTEP_HOST_DEVICE static T backward(T y, T grad) {
    return grad * (T(1) - y * y);
  }
};

template <typename Math>
struct Sigmoid {
  template <typename T>
  LOCKSTEP_HOST_DEVICE static T forward(T x) {
    return T(1) / (T(1) + Math::exp(-x));
  }
  template <typename T>
  LOCKSTEP_HOST_DEVICE static T backward(T y, T grad) {
    return grad * (y * (T(1) - y));
  }
};

// x * Phi(x), Phi the distribution function of the normal distribution.
template <typename Math>
struct GeluErf {
  template <typename T>
  LOCKSTEP_HOST_DEVICE static T forward(T x) {
    return x * Math::normal_distribution(x);
  }
  template <typename T>
  LOCKSTEP_HOST_DEVICE static T backward(T x, T grad) {
    const T density = T(0.398942280401432677939946) * Math::exp(T(-0.5) * x * x);
    return grad * (Math::normal_distribution(x) + x * density);
  }
};

// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
template <typename Math>
struct GeluTanh {
  template <typename T>
  LOCKSTEP_HOST_DEVICE static T forward(T x) {
    return T(0.5) * x * (T(1) + Math::tanh(inner(x)));
  }
  template <typename T>
  LOCKSTEP_HOST_DEVICE static T backward(T x, T grad) {
    const T t = Math::tanh(inner(x));
    const T slope = T(kFactor) * (T(1) + T(3 * 0.044715) * x * x);
    return grad * (T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * slope);
  }

 private:
  static constexpr double kFactor = 0.797884560802865355879892;  // sqrt(2/pi)
  template <typename T>
  LOCKSTEP_HOST_DEVICE static T inner(T x) {
    return T(kFactor) * (x + T(0.044715) * x * x * x);
  }
};

// Calls function(functor) with the functor of an activation.
template <typename Math, typename Function>
void for_activation_with(Activation activation, Function&& function) {
  switch (activation) {
    case Activation::none:
      return function(Identity{});
    case Activation::relu:
      return function(Relu{});
    case Activation::gelu_erf:
      return function(GeluErf<Math>{});
    case Activation::gelu_tanh:
      return function(GeluTanh<Math>{});
    case Activation::tanh:
      return function(Tanh<Math>{});
    case Activation::sigmoid:
      return function(Sigmoid<Math>{});
  }
}

}  // namespace lockstep::kernels
