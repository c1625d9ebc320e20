// Misuse of the C++ interface: calls that are wrong in one way each, with everything else about
// them drawn at random.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/autograd/variable.h"
#include "engine/core/rng.h"

namespace lockstep::testing {

struct Misuse {
  std::string name;
  std::function<void(Rng& rng)> commit;  // has to end in an Error
};
using Misuses = std::vector<Misuse>;

Misuses tensor_misuses();
Misuses autograd_misuses();
Misuses nn_misuses();
Misuses optim_misuses();
Misuses data_misuses();
Misuses comm_misuses();
Misuses parallel_misuses();

// --- what is drawn ---
// A whole number in [low, high].
inline std::size_t between(Rng& rng, std::size_t low, std::size_t high) {
  return low + rng.below(high - low + 1);
}

template <typename T>
const T& one_of(Rng& rng, const std::vector<T>& all) {
  return all[rng.below(all.size())];
}

// Of up to 4 dimensions of 1 to 5.
inline std::vector<std::size_t> random_sizes(Rng& rng, std::size_t min_dims = 0) {
  std::vector<std::size_t> sizes(between(rng, min_dims, 4));
  for (std::size_t& size : sizes) size = between(rng, 1, 5);
  return sizes;
}
inline Shape shape_of(const std::vector<std::size_t>& sizes) {
  return Shape(std::span<const std::size_t>(sizes));
}
inline Shape random_shape(Rng& rng, std::size_t min_dims = 0) {
  return shape_of(random_sizes(rng, min_dims));
}

// As random_shape, but with another number of elements than the given one.
inline Shape other_shape(Rng& rng, const Shape& shape) {
  while (true) {
    const Shape other = random_shape(rng);
    if (other.num_elements() != shape.num_elements()) return other;
  }
}

inline DType random_float(Rng& rng) {
  return one_of<DType>(rng, {DType::float32, DType::float64});
}
inline DType other_float(DType dtype) {
  return dtype == DType::float32 ? DType::float64 : DType::float32;
}
inline DType random_integer(Rng& rng) {
  return one_of<DType>(rng, {DType::int64, DType::int32, DType::uint8});
}

// One that exists on no machine.
inline Device no_device(Rng& rng) {
  const int index = static_cast<int>(between(rng, 64, 1000));
  return one_of<Device>(rng, {{DeviceType::cpu, index},
                              {DeviceType::cpu, -index},
                              {DeviceType::cuda, index},
                              {DeviceType::cuda, -index}});
}

inline Tensor random_values(Rng& rng, const Shape& shape, DType dtype = DType::float32,
                            Device device = Device{}) {
  return Tensor::uniform(shape, -1, 1, rng, dtype, device);
}
inline Variable leaf(Rng& rng, const Shape& shape, DType dtype = DType::float32,
                     Device device = Device{}) {
  return Variable(random_values(rng, shape, dtype, device), RequiresGrad::yes);
}

// Bytes that mean nothing.
inline std::string garbage(Rng& rng) {
  std::string text(between(rng, 1, 12), ' ');
  for (char& c : text) c = static_cast<char>(between(rng, '!', '~'));
  return "?" + text;
}

}  // namespace lockstep::testing
