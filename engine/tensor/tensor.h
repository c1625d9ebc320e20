// Tensor: a contiguous row-major block of one device's memory, with a dtype and a shape.
//
// Copying a Tensor copies the handle, not the data. Views exist if they stay contiguous: row ranges
// (shards of a batch) and reshapes share storage; anything else copies. Work on a tensor is
// enqueued on its device's compute stream. autograd/variable.h adds gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/core/device.h"
#include "engine/core/dtype.h"
#include "engine/core/rng.h"
#include "engine/core/shape.h"
#include "engine/core/views.h"
#include "engine/runtime/storage.h"
#include "kernels/backend.h"

namespace lockstep {

// The device of tensors made without naming one, for the whole process: cpu:0 at first.
// Source: torch.set_default_device.
Device default_device();
// Throws Error{Device} if there is no such device.
void set_default_device(Device device);

class Tensor {
 public:
  Tensor() = default;  // undefined: no storage

  // --- making tensors; without a device, on default_device() ---
  // Each throws Error{Shape} that names shape and dtype if the bytes cannot be counted, and
  // Error{Device} if there is not enough memory.
  static Tensor empty(const Shape& shape, DType dtype = DType::float32,
                      Device device = default_device());
  // On cpu:0, in pinned memory, which GPUs access by themselves (plain memory without CUDA).
  static Tensor empty_pinned(const Shape& shape, DType dtype);
  // In a pool of the device that outlives the tensor.
  static Tensor empty_in(runtime::MemoryPool& pool, runtime::LogicalDevice& owner,
                         const Shape& shape, DType dtype);
  static Tensor zeros(const Shape& shape, DType dtype = DType::float32,
                      Device device = default_device());
  static Tensor full(const Shape& shape, double value, DType dtype = DType::float32,
                     Device device = default_device());
  // A scalar that others share, so nothing may change it: the gradient with which backward()
  // begins, which would take another kernel in every step. Few different values are expected.
  static Tensor cached_scalar(double value, DType dtype, Device device);
  // With another tensor's shape, dtype and device.
  static Tensor empty_like(const Tensor& other);
  static Tensor zeros_like(const Tensor& other);
  // Copies host values. Throws Error{Shape} if their number is not the shape's.
  template <typename T>
  static Tensor from(std::span<const T> values, const Shape& shape,
                     Device device = default_device());
  template <typename T>
  static Tensor from(const std::vector<T>& values, const Shape& shape,
                     Device device = default_device()) {
    return from(std::span<const T>(values), shape, device);
  }
  // Values are drawn on the host in double, so they are the same on every device and thread count.
  static Tensor uniform(const Shape& shape, double low, double high, Rng& rng,
                        DType dtype = DType::float32, Device device = default_device());
  static Tensor normal(const Shape& shape, double mean, double standard_deviation, Rng& rng,
                       DType dtype = DType::float32, Device device = default_device());

  // --- what it is ---
  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  std::size_t num_dims() const { return shape_.num_dims(); }
  std::size_t size(std::size_t dim) const { return shape_[dim]; }
  std::size_t num_elements() const { return num_elements_; }
  std::size_t num_bytes() const { return num_elements_ * size_of(dtype_); }
  DType dtype() const { return dtype_; }
  Device device() const { return logical_device().device(); }
  // Throws Error{State} if undefined; so does everything else that needs the storage.
  runtime::LogicalDevice& logical_device() const { return checked_storage().device(); }
  runtime::Stream& stream() const { return logical_device().compute_stream(); }
  kernels::Backend& backend() const { return kernels::backend(device().type); }
  const std::shared_ptr<runtime::Storage>& storage() const { return storage_; }
  bool shares_memory_with(const Tensor& other) const;  // same first byte and number of bytes

  // --- its memory ---
  void* raw() const { return static_cast<std::byte*>(checked_storage().data()) + byte_offset_; }
  TensorView view() const { return {raw(), dtype_, num_elements_}; }
  // Two dimensions: dim 0 by everything else. [n] is n x 1; a scalar is 1 x 1.
  MatrixView matrix() const;
  // Host elements: host<const float>() reads them; host<float>() is for changes, and counts as one.
  // Throws Error{Device} unless on the CPU, Error{DType} for another type.
  template <typename T>
  std::span<T> host() const;

  // --- changes in place ---
  // How often this memory was changed, through this tensor or any other view of it. fill,
  // copy_from, host<T>(), optimizers and collectives count; backward() refuses a tensor that
  // forward saved in another version. Source: PyTorch's Tensor._version.
  std::uint64_t version() const { return checked_storage().version(); }
  // For code that writes through raw(), view() or matrix(), which do not count by themselves.
  void bump_version() const { checked_storage().bump_version(); }

  // Arithmetic as in PyTorch: p.add_(p.grad(), -lr); buffer += received. For floating dtypes. Each
  // returns this tensor and is enqueued on its device's compute stream.
  // Throws Error{Shape}, Error{DType} or Error{Device} unless other has this tensor's shape, dtype
  // and device.
  const Tensor& add_(const Tensor& other, double factor = 1) const;  // this = this + factor * other
  const Tensor& operator+=(const Tensor& other) const { return add_(other); }
  const Tensor& scale_(double factor) const;  // this = factor * this

  // --- views (share storage) ---
  // Each throws Error{Shape} unless it lies inside this tensor, and so inside its storage.
  // Rows begin ... end - 1 along dim 0.
  Tensor rows(std::size_t begin, std::size_t end) const;
  // The same elements in another shape.
  Tensor reshape(const Shape& shape) const;
  // num elements from `begin` of the flattened tensor, in a shape.
  Tensor slice(std::size_t begin, const Shape& shape) const;
  // The same with a version of its own: who changes one part has not changed the others.
  Tensor versioned_slice(std::size_t begin, const Shape& shape) const;

  // --- copies ---
  Tensor clone() const;
  Tensor to(Device device) const;              // this tensor itself if it is there already
  Tensor to(DType dtype) const;                // this tensor itself if it has the type already
  void copy_from(const Tensor& source) const;  // same shape and dtype, any device
  void fill(double value) const;

  // --- reading values (waits for the device) ---
  // The only element. Throws Error{Shape} if there is not exactly one.
  double item() const;
  // Element `index` of a vector. Throws Error{Shape} for other shapes and outside it.
  double operator[](std::size_t index) const;
  // All elements, converted to T.
  template <typename T>
  std::vector<T> to_vector() const;

 private:
  runtime::Storage& checked_storage() const {
    if (!storage_) [[unlikely]]
      fail_undefined();
    return *storage_;
  }
  [[noreturn]] static void fail_undefined();
  void copy_by_cuda(const Tensor& source) const;  // one of the two is on a CUDA device

  std::shared_ptr<runtime::Storage> storage_;
  Shape shape_;
  std::size_t num_elements_ = 0;
  std::size_t byte_offset_ = 0;
  DType dtype_ = DType::float32;
};

// "Tensor[30, 5] float32 on cpu:0"
std::string describe(const Tensor& tensor);

// Throws Error{Device} naming both devices unless all defined tensors share one;
// Error{DType} likewise for dtypes.
void require_same_device(std::string_view operation, std::initializer_list<const Tensor*> tensors);
void require_same_dtype(std::string_view operation, std::initializer_list<const Tensor*> tensors);
void require_same_shape(std::string_view operation, const Tensor& a, const Tensor& b);

}  // namespace lockstep
