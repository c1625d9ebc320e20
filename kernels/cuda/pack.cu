// Gradients to and from a bucket: every element in and out once, one launch for up to 137 tensors.

#include "kernels/cuda/checks.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/tensor_list.cuh"

namespace lockstep::kernels::cuda {
namespace {

// to[i] = factor * from[i] of the tensor that the block works on: data[0] is from, data[1] to.
template <typename T, typename List>
__global__ void pack_kernel(List list, T factor) {
  const Slice slice = slice_of_block(list, ThreadPart<T>::kElementsPerBlock);
  const T* const from = static_cast<const T*>(list.data[0][slice.tensor]);
  T* const to = static_cast<T*>(list.data[1][slice.tensor]);
  const ThreadPart<T> part(slice, is_aligned(from) && is_aligned(to));
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
