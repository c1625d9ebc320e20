// Conversions between element types, all of them. Moves every element once, in and out.
#include "kernels/cuda/checks.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/half.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vector.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr std::size_t kGroup = 4;  // elements of a thread's vector, whatever their sizes

template <typename From, typename To>
__global__ void convert_kernel(const From* from, To* to, std::size_t num_elements,
                               std::size_t in_vectors) {
  const std::size_t step = num_global_threads();
  for (std::size_t i = global_thread() * kGroup; i < in_vectors; i += step * kGroup) {
    const auto in = load_vector<kGroup>(from + i);
    Vector<To, kGroup> out;
#pragma unroll
    for (std::size_t k = 0; k < kGroup; ++k) out.at[k] = element_cast<To>(in.at[k]);
    store_vector(to + i, out);
  }
  for (std::size_t i = in_vectors + global_thread(); i < num_elements; i += step) {
    to[i] = element_cast<To>(from[i]);
  }
}

template <typename From, typename To>
void convert_elements(Stream& stream, const From* from, To* to, std::size_t num_elements) {
  const bool aligned =
      is_aligned(from, kGroup * sizeof(From)) && is_aligned(to, kGroup * sizeof(To));
  const std::size_t in_vectors = aligned ? num_elements / kGroup * kGroup : 0;
  const std::size_t wanted = aligned ? (num_elements + kGroup - 1) / kGroup : num_elements;
  launch(stream, "convert", covering(wanted, kThreads), convert_kernel<From, To>, from, to,
         num_elements, in_vectors);
}

}  // namespace

void CudaBackend::convert(Stream& stream, ConstTensorView from, TensorView to) {
  checks::convert(from, to);
  if (from.num_elements == 0) return;
  for_any(from.dtype, [&]<typename From>() {
    for_any(to.dtype, [&]<typename To>() {
      convert_elements(stream, data_of<From>(from), data_of<To>(to), to.num_elements);
    });
  });
}

}  // namespace lockstep::kernels::cuda
