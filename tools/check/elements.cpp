#include "tools/check/elements.h"

#include <cmath>
#include <cstdint>
#include <cstring>

namespace lockstep::tools {
namespace {

// Makes a tensor readable for this process; one on the CPU is not copied.
Tensor readable(const Tensor& tensor) {
  return tensor.device().type == DeviceType::cpu ? tensor : tensor.to(Device{});
}

}  // namespace

std::size_t place_of_element(std::size_t i, std::size_t size, std::size_t round) {
  const double turns = 0.6180339887498949 * static_cast<double>(i + 1) +  // the golden ratio
                       0.7548776662466927 * static_cast<double>(round);
  return static_cast<std::size_t>((turns - std::floor(turns)) * static_cast<double>(size));
}

double element_at(const Tensor& tensor, std::size_t place) {
  return tensor.dtype() == DType::float64 ? tensor.host<const double>()[place]
                                          : tensor.host<const float>()[place];
}

std::vector<double> all_elements(const Tensor& tensor) {
  const Tensor host = readable(tensor);
  const auto copy = [](const auto& values) {
    return std::vector<double>(values.begin(), values.end());
  };
  if (host.dtype() == DType::int64) return copy(host.host<const std::int64_t>());
  if (host.dtype() == DType::float64) return copy(host.host<const double>());
  return copy(host.host<const float>());
}

std::vector<double> few_elements(const Tensor& tensor) {
  const std::size_t size = tensor.num_elements();
  if (size <= kFewElements) return tensor.to_vector<double>();
  const Tensor host = readable(tensor);
  std::vector<double> values;
  for (std::size_t i = 0; i < kFewElements; ++i) {
    values.push_back(element_at(host, place_of_element(i, size)));
  }
  return values;
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), 8 * a.size()) == 0;
}

}  // namespace lockstep::tools
