// Scaling many tensors in one launch (of up to 192), and moving gradients to and from a bucket (of
// up to 137 tensors): every element in and out once.
#include <cstdint>

#include "kernels/cuda/checks.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/tensor_list.cuh"

namespace lockstep::kernels::cuda {
namespace {

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
  const ThreadPart<T> part(slice);
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

void CudaBackend::multi_scale(Stream& stream, std::span<const TensorView> tensors, double factor) {
  scale_all(stream, "multi_scale", tensors, Factor{factor});
}

void CudaBackend::multi_clip(Stream& stream, std::span<const TensorView> tensors,
                             ConstTensorView norm, double max_norm) {
  checks::multi_clip(norm);
  scale_all(stream, "multi_clip", tensors, ClipFactor{data_of<double>(norm), max_norm});
}

namespace {

// to[i] = factor * from[i] of the tensor that the block works on: data[0] is from, data[1] to.
template <typename T, typename List>
__global__ void pack_kernel(List list, T factor) {
  const Slice slice = slice_of_block(list, ThreadPart<T>::kElementsPerBlock);
  const T* const from = static_cast<const T*>(list.data[0][slice.tensor]);
  T* const to = static_cast<T*>(list.data[1][slice.tensor]);
  const ThreadPart<T> part(slice);
  Vector<T> values = part.load(from);
#pragma unroll
  for (T& value : values.at) value *= factor;
  part.store(to, values);
}

// Launches `operation` for all items; entry(i) says from where to where.
template <typename T, typename Entry>
void launch_pack(Stream& stream, const char* operation, std::size_t num_items, T factor,
                 const Entry& entry) {
  for_tensor_lists<2>(num_items, ThreadPart<T>::kElementsPerBlock, entry,
                      [&]<typename List>(const List& list, unsigned num_blocks) {
                        launch(stream, operation, {dim3(num_blocks), dim3(kThreads)},
                               pack_kernel<T, List>, list, factor);
                      });
}

}  // namespace

void CudaBackend::pack(Stream& stream, std::span<const PackItem> items, double factor,
                       TensorView bucket) {
  checks::pack(items, bucket);
  for_floating(bucket.dtype, "pack", [&]<typename T>() {
    launch_pack(stream, "pack", items.size(), static_cast<T>(factor),
                [&](std::size_t i) -> TensorEntry<2> {
                  return {{items[i].tensor.data, data_of<T>(bucket) + items[i].offset},
                          items[i].tensor.num_elements};
                });
  });
}

void CudaBackend::unpack(Stream& stream, ConstTensorView bucket, std::span<const PackItem> items) {
  checks::unpack(bucket, items);
  for_width(bucket.dtype, [&]<typename Unit>() {
    launch_pack(stream, "unpack", items.size(), Unit{1}, [&](std::size_t i) -> TensorEntry<2> {
      const Unit* const from = data_of<Unit>(bucket) + items[i].offset;
      return {{const_cast<Unit*>(from), items[i].tensor.data}, items[i].tensor.num_elements};
    });
  });
}

}  // namespace lockstep::kernels::cuda
