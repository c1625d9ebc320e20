// Loads and stores of several elements at once.
//
// A GPU reads memory fastest in pieces of 16 bytes per thread. Kernels use them where every pointer
// is aligned to 16 bytes, and single elements elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::kernels::cuda {

inline constexpr unsigned kThreads = 256;  // of a block, unless a kernel says otherwise
inline constexpr unsigned kWarp = 32;

// Elements of T in 16 bytes.
template <typename T>
inline constexpr std::size_t kWidth = 16 / sizeof(T);

template <typename T, std::size_t kElements = kWidth<T>>
struct alignas(sizeof(T) * kElements) Vector {
  T at[kElements];
};

template <std::size_t kElements, typename T>
__device__ Vector<T, kElements> load_vector(const T* from) {
  return *reinterpret_cast<const Vector<T, kElements>*>(from);
}

template <typename T, std::size_t kElements>
__device__ void store_vector(T* to, const Vector<T, kElements>& values) {
  *reinterpret_cast<Vector<T, kElements>*>(to) = values;
}

__host__ __device__ inline bool is_aligned(const void* pointer, std::size_t num_bytes = 16) {
  return reinterpret_cast<std::uintptr_t>(pointer) % num_bytes == 0;
}

// The place of the calling thread among all threads of a one-dimensional launch, and their number.
__device__ inline std::size_t global_thread() {
  return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ inline std::size_t num_global_threads() {
  return std::size_t{gridDim.x} * blockDim.x;
}

}  // namespace lockstep::kernels::cuda
