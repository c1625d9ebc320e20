// Activations and their slopes in double, written as in the textbooks.
#pragma once

#include <cmath>
#include <numbers>

#include "kernels/calls.h"

namespace lockstep::kernels {

inline constexpr Activation kActivations[] = {Activation::none,     Activation::relu,
                                              Activation::gelu_erf, Activation::gelu_tanh,
                                              Activation::tanh,     Activation::sigmoid};

inline double activate(Activation activation, double x) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return std::isnan(x) ? x : std::max(x, 0.0);
    case Activation::gelu_erf:
      return x / 2 * std::erfc(-x / std::numbers::sqrt2);
    case Activation::gelu_tanh: {
      const double inner = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
      return x / 2 * (1 + std::tanh(inner));
    }
    case Activation::tanh:
      return std::tanh(x);
    case Activation::sigmoid:
      return 1 / (1 + std::exp(-x));
  }
  return x;
}

// The derivative of activate() at x.
inline double slope(Activation activation, double x) {
  switch (activation) {
    case Activation::none:
      return 1;
    case Activation::relu:
      return x > 0 ? 1 : 0;
    case Activation::gelu_erf:
      return std::erfc(-x / std::numbers::sqrt2) / 2 +
             x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
    case Activation::gelu_tanh: {
      const double root = std::sqrt(2 / std::numbers::pi);
      const double t = std::tanh(root * (x + 0.044715 * x * x * x));
      return (1 + t) / 2 + x / 2 * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x);
    }
    case Activation::tanh:
      return 1 - std::tanh(x) * std::tanh(x);
    case Activation::sigmoid:
      return activate(activation, x) * (1 - activate(activation, x));
  }
  return 1;
}

}  // namespace lockstep::kernels
