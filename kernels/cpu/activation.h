// The activations (kernels/activation_formulas.h) with the CPU's exp, tanh and normal distribution.
#pragma once

#include <utility>

#include "kernels/activation_formulas.h"
#include "kernels/cpu/math.h"

namespace lockstep::kernels {

struct CpuMath {
  template <typename T>
  static T exp(T x) {
    return exp_of(x);
  }
  template <typename T>
  static T tanh(T x) {
    return tanh_of(x);
  }
  template <typename T>
  static T normal_distribution(T x) {
    return normal_distribution_of(x);
  }
};

// Calls function(functor) with the functor of an activation.
template <typename Function>
void for_activation(Activation activation, Function&& function) {
  for_activation_with<CpuMath>(activation, std::forward<Function>(function));
}

}  // namespace lockstep::kernels
