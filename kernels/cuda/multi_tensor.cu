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

// A factor that is known, and one that is found on the device: nothing to do for 1 and more.
struct Factor {
  double factor;
  __device__ double value() const { return factor; }
  __device__ static bool leaves_alone(double) { return false; }
};
struct ClipFactor {
  const double* norm;
  double max_norm;
  __device__ double value() const { return max_norm / (*norm + 1e-6); }
  __device__ static bool leaves_alone(double factor) { return factor >= 1; }
};

template <typename T, typename List, typename By>
__global__ void scale_kernel(List list, By by) {
  const double wide_factor = by.value();
  if (By::leaves_alone(wide_factor)) return;
  const T factor = static_cast<T>(wide_factor);
  const Slice slice = slice_of_block(list, ThreadPart<T>::kElementsPerBlock);
  T* const x = static_cast<T*>(list.data[0][slice.tensor]);
  const ThreadPart<T> part(slice, is_aligned(x));
  Vector<T> values = part.load(x);
#pragma unroll
  for (T& value : values.at) value *= factor;
  part.store(x, values);
}

template <typename By>
void scale_all(Stream& stream, const char* operation, std::span<const TensorView> tensors, By by) {
  for (const TensorView& tensor : tensors) require_floating(operation, tensor.dtype);
  const auto scale_those_of = [&]<typename T>() {
    const auto entry = [&](std::size_t i) -> TensorEntry<1> {
      if (tensors[i].dtype != dtype_of<T>) return {};
      return {{tensors[i].data}, tensors[i].num_elements};
    };
    for_tensor_lists<1>(tensors.size(), ThreadPart<T>::kElementsPerBlock, entry,
                        [&]<typename List>(const List& list, unsigned num_blocks) {
                          launch(stream, operation, {dim3(num_blocks), dim3(kThreads)},
                                 scale_kernel<T, List, By>, list, by);
                        });
  };
  scale_those_of.template operator()<float>();
  scale_those_of.template operator()<double>();
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
  scale_all(stream, "multi_scale", tensors, Factor{factor});
}

void CudaBackend::multi_clip(Stream& stream, std::span<const TensorView> tensors,
                             ConstTensorView norm, double max_norm) {
  checks::multi_clip(norm);
  scale_all(stream, "multi_clip", tensors, ClipFactor{data_of<double>(norm), max_norm});
}

}  // namespace lockstep::kernels::cuda
