// exp, tanh and the normal distribution of one element, and the activations that use them, written
// without branches so that loops over them vectorise.
//
// float: our own approximations, with a relative error below 2e-7 (2e-6 in the tails of the normal
// distribution), exact at 0, infinities and NaN.
// double: the C library, because gradients are checked against it.
// Source: the range reduction and the polynomials of exp and tanh are those of Cephes (S. Moshier);
// those of the normal distribution were fitted at Chebyshev nodes for this file.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

#include "kernels/activation_formulas.h"

namespace lockstep::kernels {

inline double exp_of(double x) {
  return std::exp(x);
}
inline double tanh_of(double x) {
  return std::tanh(x);
}
// The distribution function of the normal distribution, erfc(-x / sqrt(2)) / 2.
inline double normal_distribution_of(double x) {
  return 0.5 * std::erfc(x * -0.707106781186547524400844);
}

// 2^n for -126 <= n <= 127.
inline float power_of_two(std::int32_t n) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(n + 127) << 23);
}

inline float exp_of(float x) {
  // exp(x) = 2^n exp(r), |r| <= ln(2)/2. Outside this range the result is 0 or infinity anyway; a
  // NaN passes both comparisons.
  const float clamped = x > 90.0f ? 90.0f : (x < -105.0f ? -105.0f : x);
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  constexpr float kRound = 12582912.0f;
  const float shifted = clamped * 1.44269504088896341f + kRound;
  const std::uint32_t n_bits =
      std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kRound);
  const float n = shifted - kRound;
  const float r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  // 2^n in two factors: n reaches -152 and 130, where one factor alone would not be a float. The
  // mask keeps a NaN's meaningless n in range.
  const auto whole = static_cast<std::int32_t>((n_bits + 256u) & 511u) - 256;
  const std::int32_t half = whole >> 1;
  return p * power_of_two(half) * power_of_two(whole - half);
}

inline float tanh_of(float x) {
  const float magnitude = std::fabs(x);
  const float square = x * x;
  float p = -5.70498872745e-3f;
  p = p * square + 2.06390887954e-2f;
  p = p * square - 5.37397155531e-2f;
  p = p * square + 1.33314422036e-1f;
  p = p * square - 3.33332819422e-1f;
  const float small = p * square * x + x;
  const float large = std::copysign(1.0f - 2.0f / (exp_of(2.0f * magnitude) + 1.0f), x);
  return magnitude < 0.625f ? small : large;
}

inline float normal_distribution_of(float x) {
  const float z = x * 0.707106781186547524f;
  const float square = z * z;
  // |z| < 1: erf(z) / z as a polynomial in z^2.
  float p = 7.882497109647257e-05f;
  p = p * square - 8.01885499248055e-04f;
  p = p * square + 5.189311942623951e-03f;
  p = p * square - 2.6854328796013453e-02f;
  p = p * square + 1.1283597463486056e-01f;
  p = p * square - 3.7612626903580165e-01f;
  p = p * square + 1.1283791658815026f;
  const float middle = 0.5f + 0.5f * z * p;
  // Beyond: erfc(|z|) exp(z^2) / t as a polynomial in t = 1 / (1 + |z|/2).
  const float t = 1.0f / (1.0f + 0.5f * std::fabs(z));
  float q = 9.481685668857082e-02f;
  q = q * t - 2.301099292150673e-01f;
  q = q * t + 8.71074188628763e-02f;
  q = q * t + 5.7982379479282774e-02f;
  q = q * t + 1.7991907742036717e-01f;
  q = q * t + 2.4671556413007453e-01f;
  q = q * t + 2.8206851242908393e-01f;
  q = q * t + 2.820970200003644e-01f;
  const float tail = 0.5f * t * q * exp_of(-square);
  return square < 1.0f ? middle : (x < 0.0f ? tail : 1.0f - tail);
}

// For the activations of kernels/activation_formulas.h.
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
