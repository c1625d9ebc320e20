// Element types of tensors, and the operations that reduce elements to one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

// Compiles a function for host and device, if the compiler knows both.
#ifdef __CUDACC__
#define LOCKSTEP_HOST_DEVICE __host__ __device__
#else
#define LOCKSTEP_HOST_DEVICE
#endif

namespace lockstep {

enum class DType : std::uint8_t { float64, float32, bfloat16, float16, int64, int32, uint8 };

// Bytes of one element.
constexpr std::size_t size_of(DType dtype) {
  constexpr std::size_t kNumBytes[] = {8, 4, 2, 2, 8, 4, 1};
  return kNumBytes[static_cast<std::size_t>(dtype)];
}

// "float32", "uint8", ... as PyTorch and safetensors readers know them.
std::string_view to_string(DType dtype);

// Throws Error{DType} for a name that is none of the above.
DType parse_dtype(std::string_view name);

// The enumeration begins with the floating-point types.
constexpr bool is_floating_point(DType dtype) {
  return dtype <= DType::float16;
}

// average: every contribution is multiplied by 1/world_size as it enters, then summed. Floating
// point only.
enum class ReduceOp { sum, average, product, min, max };

// dtype_of<float> is DType::float32. The classes of half.h have a kDType.
template <typename T>
inline constexpr DType dtype_of = T::kDType;
template <>
inline constexpr DType dtype_of<double> = DType::float64;
template <>
inline constexpr DType dtype_of<float> = DType::float32;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::int64;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::int32;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::uint8;

}  // namespace lockstep
