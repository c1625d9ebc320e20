// Element types of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep {

enum class DType : std::uint8_t { float64, float32, bfloat16, float16, int64, int32, uint8 };

// Bytes of one element.
std::size_t size_of(DType dtype);

// "float32", "uint8", ... as PyTorch and safetensors readers know them.
std::string_view to_string(DType dtype);

// Throws Error{DType} for a name that is none of the above.
DType parse_dtype(std::string_view name);

bool is_floating_point(DType dtype);

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::float64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::float32;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::int64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::int32;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::uint8;
};

// dtype_of<float> is DType::float32.
template <typename T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

}  // namespace lockstep
