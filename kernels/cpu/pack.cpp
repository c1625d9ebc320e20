// Many tensors in one call.
#include <cstring>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/eigen_backend.h"
#include "kernels/cpu/independent.h"
#include "kernels/cpu/parallel.h"

namespace lockstep::kernels {
namespace {

template <typename T>
void scale_range(const T* from, double factor, T* to, std::size_t begin, std::size_t end) {
  if (factor == 1) {
    if (to != from) std::memcpy(to + begin, from + begin, (end - begin) * sizeof(T));
    return;
  }
  const T s = static_cast<T>(factor);
  LOCKSTEP_INDEPENDENT
  for (std::size_t i = begin; i < end; ++i) to[i] = s * from[i];
}

}  // namespace

void EigenBackend::multi_zero(Stream& stream, std::span<const TensorView> tensors) {
  for (const TensorView& tensor : tensors) {
    parallel_ranges(stream, tensor.num_bytes(), kParallelGrain * sizeof(float),
                    [&](std::size_t begin, std::size_t end) {
                      std::memset(static_cast<std::byte*>(tensor.data) + begin, 0, end - begin);
                    });
  }
}

void EigenBackend::multi_scale(Stream& stream, std::span<const TensorView> tensors, double factor) {
  for (const TensorView& tensor : tensors) require_floating("multi_scale", tensor.dtype);
  for (const TensorView& tensor : tensors) scale(stream, tensor, factor, tensor);
}

void EigenBackend::multi_clip(Stream& stream, std::span<const TensorView> tensors,
                              ConstTensorView norm, double max_norm) {
  checks::multi_clip(norm);
  for (const TensorView& tensor : tensors) require_floating("multi_clip", tensor.dtype);
  const double factor = max_norm / (*data_of<double>(norm) + 1e-6);
  if (factor >= 1) return;
  multi_scale(stream, tensors, factor);
}

void EigenBackend::pack(Stream& stream, std::span<const PackItem> items, double factor,
                        TensorView bucket) {
  checks::pack(items, bucket);
  for_floating(bucket.dtype, "pack", [&]<typename T>() {
    for (const PackItem& item : items) {
      parallel_elements(stream, item.tensor.num_elements, [&](std::size_t begin, std::size_t end) {
        scale_range<T>(data_of<T>(item.tensor), factor, data_of<T>(bucket) + item.offset, begin,
                       end);
      });
    }
  });
}

void EigenBackend::unpack(Stream& stream, ConstTensorView bucket, std::span<const PackItem> items) {
  checks::unpack(bucket, items);
  for (const PackItem& item : items) {
    copy(stream, bucket.part(item.offset, item.tensor.num_elements), item.tensor);
  }
}

}  // namespace lockstep::kernels
