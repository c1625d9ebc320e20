// Zeroing and scaling many tensors: one launch for up to 192 of them.
#include <cstdint>

#include "kernels/cuda/checks.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/tensor_list.cuh"

namespace lockstep::kernels::cuda {
namespace {

template <typename List>
__global__ void zero_kernel(List list) {
  using Part = ThreadPart<std::uint8_t>;
  const Slice slice = slice_of_block(list, Part::kElementsPerBlock);
  auto* const bytes = static_cast<std::uint8_t*>(list.data[0][slice.tensor]);
  Part(slice, is_aligned(bytes)).store(bytes, {});
}

template <typename T, typename List>
__global__ void scale_kernel(List list, T factor) {
  const Slice slice = slice_of_block(list, ThreadPart<T>::kElementsPerBlock);
  T* const x = static_cast<T*>(list.data[0][slice.tensor]);
  const ThreadPart<T> part(slice, is_aligned(x));
  Vector<T> values = part.load(x);
#pragma unroll
  for (T& value : values.at) value *= factor;
  part.store(x, values);
}

}  // namespace

void CudaBackend::multi_zero(Stream& stream, std::span<const TensorView> tensors) {
  const auto entry = [&](std::size_t i) -> TensorEntry<1> {
    return {{tensors[i].data}, tensors[i].num_bytes()};
  };
  for_tensor_lists<1>(
      tensors.size(), ThreadPart<std::uint8_t>::kElementsPerBlock, entry,
      [&]<typename List>(const List& list, unsigned num_blocks) {
        launch(stream, "multi_zero", {dim3(num_blocks), dim3(kThreads)}, zero_kernel<List>, list);
      });
}

void CudaBackend::multi_scale(Stream& stream, std::span<const TensorView> tensors, double factor) {
  for (const TensorView& tensor : tensors) require_floating("multi_scale", tensor.dtype);
  const auto scale_all = [&]<typename T>() {
    const auto entry = [&](std::size_t i) -> TensorEntry<1> {
      if (tensors[i].dtype != dtype_of<T>) return {};
      return {{tensors[i].data}, tensors[i].num_elements};
    };
    for_tensor_lists<1>(tensors.size(), ThreadPart<T>::kElementsPerBlock, entry,
                        [&]<typename List>(const List& list, unsigned num_blocks) {
                          launch(stream, "multi_scale", {dim3(num_blocks), dim3(kThreads)},
                                 scale_kernel<T, List>, list, static_cast<T>(factor));
                        });
  };
  scale_all.template operator()<float>();
  scale_all.template operator()<double>();
}

}  // namespace lockstep::kernels::cuda
