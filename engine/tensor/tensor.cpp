#include "engine/tensor/tensor.h"

#include <atomic>
#include <cstring>
#include <functional>
#include <type_traits>

#include "engine/core/error.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/storage.h"
#include "kernels/calls.h"

namespace lockstep {

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  runtime::LogicalDevice& owner = runtime::logical_device(device);
  return empty_in(owner.memory(), owner, shape, dtype);
}

Tensor Tensor::empty_in(runtime::MemoryPool& pool, runtime::LogicalDevice& owner,
                        const Shape& shape, DType dtype) {
  Tensor tensor;
  tensor.shape_ = shape;
  tensor.num_elements_ = shape.num_elements();
  tensor.dtype_ = dtype;
  tensor.storage_ = std::make_shared<runtime::Storage>(owner, num_bytes_of(shape, dtype), pool);
  return tensor;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) {
  return full(shape, 0.0, dtype, device);
}

Tensor Tensor::full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor tensor = empty(shape, dtype, device);
  tensor.fill(value);
  return tensor;
}

Tensor Tensor::empty_like(const Tensor& other) {
  return empty(other.shape(), other.dtype(), other.device());
}

Tensor Tensor::zeros_like(const Tensor& other) {
  return zeros(other.shape(), other.dtype(), other.device());
}

template <typename T>
Tensor Tensor::from(std::span<const T> values, const Shape& shape, Device device) {
  if (values.size() != shape.num_elements()) {
    fail(ErrorCode::Shape, "tensor", "shape {} needs {} values, found {}", to_string(shape),
         shape.num_elements(), values.size());
  }
  Tensor host = empty(shape, dtype_of<T>, Device{});
  if (!values.empty()) std::memcpy(host.raw(), values.data(), values.size_bytes());
  return host.to(device);
}

namespace {

// Draws in place if the host can write the device's memory, so that cpu:0 never holds a copy of
// another device's tensor.
template <typename T, typename Draw>
Tensor drawn(const Shape& shape, DType dtype, Device device, const Draw& draw) {
  const Tensor values =
      Tensor::empty(shape, dtype, device.type == DeviceType::cpu ? device : Device{});
  for (T& value : values.host<T>()) value = static_cast<T>(draw());
  return values.to(device);
}

}  // namespace

Tensor Tensor::uniform(const Shape& shape, double low, double high, Rng& rng, DType dtype,
                       Device device) {
  const auto draw = [&] { return rng.uniform(low, high); };
  if (dtype == DType::float32) return drawn<float>(shape, dtype, device, draw);
  if (dtype == DType::float64) return drawn<double>(shape, dtype, device, draw);
  return drawn<double>(shape, DType::float64, Device{}, draw).to(dtype).to(device);
}

Tensor Tensor::normal(const Shape& shape, double mean, double standard_deviation, Rng& rng,
                      DType dtype, Device device) {
  const Tensor values = empty(shape, DType::float64, Device{});
  for (double& value : values.host<double>()) value = mean + standard_deviation * rng.normal();
  return values.to(dtype).to(device);
}

bool Tensor::shares_memory_with(const Tensor& other) const {
  return defined() && other.defined() && raw() == other.raw() && num_bytes() == other.num_bytes();
}

MatrixView Tensor::matrix() const {
  if (num_dims() == 0) return matrix_view(raw(), dtype_, 1, 1);
  return matrix_view(raw(), dtype_, shape_[0], shape_.row_elements());
}

template <typename T>
std::span<T> Tensor::host() const {
  if (device().type != DeviceType::cpu) {
    fail(ErrorCode::Device, "host", "the tensor is on {}; copy it with to(Device{{}}) first",
         to_string(device()));
  }
  constexpr DType kAsked = dtype_of<std::remove_const_t<T>>;
  require(dtype_ == kAsked, ErrorCode::DType, "host", "the tensor has dtype {}, asked for {}",
          to_string(dtype_), to_string(kAsked));
  if constexpr (!std::is_const_v<T>) bump_version();
  return {static_cast<T*>(raw()), num_elements_};
}

Tensor Tensor::rows(std::size_t begin, std::size_t end) const {
  if (num_dims() == 0 || begin > end || end > shape_[0]) {
    fail(ErrorCode::Shape, "rows", "rows {} to {} are not inside a tensor of shape {}", begin, end,
         to_string(shape_));
  }
  return slice(begin * shape_.row_elements(), shape_.with(0, end - begin));
}

Tensor Tensor::reshape(const Shape& shape) const {
  if (shape.num_elements() != num_elements_) {
    fail(ErrorCode::Shape, "reshape", "a tensor of shape {} has {} elements; shape {} has {}",
         to_string(shape_), num_elements_, to_string(shape), shape.num_elements());
  }
  return slice(0, shape);
}

Tensor Tensor::slice(std::size_t begin, const Shape& shape) const {
  checked_storage();
  const std::size_t count = shape.num_elements();
  require(begin <= num_elements_ && count <= num_elements_ - begin, ErrorCode::Shape, "slice",
          "{} elements from {} are not inside a tensor of {}", count, begin, num_elements_);
  Tensor result = *this;
  result.shape_ = shape;
  result.num_elements_ = count;
  result.byte_offset_ += begin * size_of(dtype_);
  return result;
}

Tensor Tensor::versioned_slice(std::size_t begin, const Shape& shape) const {
  Tensor result = slice(begin, shape);
  result.storage_ =
      std::make_shared<runtime::Storage>(storage_, result.byte_offset_, result.num_bytes());
  result.byte_offset_ = 0;
  return result;
}

Tensor Tensor::clone() const {
  Tensor copy = empty(shape_, dtype_, device());
  copy.copy_from(*this);
  return copy;
}

Tensor Tensor::to(Device device) const {
  if (device == this->device()) return *this;
  Tensor copy = empty(shape_, dtype_, device);
  copy.copy_from(*this);
  return copy;
}

Tensor Tensor::to(DType dtype) const {
  checked_storage();
  if (dtype == dtype_) return *this;
  Tensor result = empty(shape_, dtype, device());
  backend().copy(stream(), {view(), result.view()});
  return result;
}

void Tensor::copy_from(const Tensor& source) const {
  require_same_shape("copy", *this, source);
  require_same_dtype("copy", {this, &source});
  bump_version();
  runtime::LogicalDevice& to = logical_device();
  runtime::LogicalDevice& from = source.logical_device();
  if (to.gpu() == runtime::kNoGpu && from.gpu() == runtime::kNoGpu) {
    // Every CPU device can address every other one's memory, so the reader's backend copies.
    backend().copy(stream(), {source.view(), view()});
  } else {
    copy_by_cuda(source);
  }
}

void Tensor::fill(double value) const {
  bump_version();
  backend().fill(stream(), {view(), value});
}

double Tensor::item() const {
  if (num_elements_ != 1) {
    fail(ErrorCode::Shape, "item", "needs exactly 1 element, found shape {}", to_string(shape_));
  }
  return to_vector<double>()[0];
}

template <typename T>
std::vector<T> Tensor::to_vector() const {
  stream().synchronize();
  const Tensor values = to(dtype_of<T>);
  const Tensor host = values.device().type == DeviceType::cpu ? values : values.to(Device{});
  host.stream().synchronize();
  const T* data = static_cast<const T*>(host.raw());
  return std::vector<T>(data, data + num_elements_);
}

void Tensor::fail_undefined() {
  fail(ErrorCode::State, "tensor",
       "is undefined: it was never given a value; a gradient is undefined until backward() fills "
       "it");
}

const Tensor& Tensor::add_(const Tensor& other, double factor) const {
  other.checked_storage();
  require_same_shape("add_", *this, other);
  require_same_dtype("add_", {this, &other});
  require_same_device("add_", {this, &other});
  bump_version();
  if (factor == 1) {
    backend().add(stream(), {view(), other.view(), view()});
  } else {
    backend().axpy(stream(), {factor, other.view(), view()});
  }
  return *this;
}

const Tensor& Tensor::scale_(double factor) const {
  bump_version();
  backend().scale(stream(), {view(), factor, view()});
  return *this;
}

double Tensor::operator[](std::size_t index) const {
  require(num_dims() == 1 && index < num_elements_, ErrorCode::Shape, "tensor",
          "there is no element [{}] in shape {}", index, to_string(shape_));
  return slice(index, {}).item();
}

std::string describe(const Tensor& tensor) {
  if (!tensor.defined()) return "undefined Tensor";
  return fmt::format("Tensor{} {} on {}", to_string(tensor.shape()), to_string(tensor.dtype()),
                     to_string(tensor.device()));
}

namespace {

// Calls differ(a, b) for the first defined tensor and one whose part(tensor) differs from its own.
template <typename Part, typename Differ>
void require_same(std::initializer_list<const Tensor*> tensors, Part part, Differ differ) {
  const Tensor* first = nullptr;
  for (const Tensor* tensor : tensors) {
    if (!tensor->defined()) continue;
    if (!first) first = tensor;
    if (part(*tensor) != part(*first)) differ(part(*first), part(*tensor));
  }
}

}  // namespace

void require_same_device(std::string_view operation, std::initializer_list<const Tensor*> tensors) {
  require_same(tensors, std::mem_fn(&Tensor::device), [&](Device a, Device b) {
    fail(ErrorCode::Device, operation,
         "all tensors must be on one device, found {} and {}; move one with to(device)",
         to_string(a), to_string(b));
  });
}

void require_same_dtype(std::string_view operation, std::initializer_list<const Tensor*> tensors) {
  require_same(tensors, std::mem_fn(&Tensor::dtype), [&](DType a, DType b) {
    fail(ErrorCode::DType, operation, "all tensors must have one dtype, found {} and {}",
         to_string(a), to_string(b));
  });
}

void require_same_shape(std::string_view operation, const Tensor& a, const Tensor& b) {
  if (a.shape() == b.shape()) return;
  fail(ErrorCode::Shape, operation, "shapes {} and {} differ", to_string(a.shape()),
       to_string(b.shape()));
}

#define LOCKSTEP_INSTANTIATE(T)                                              \
  template Tensor Tensor::from<T>(std::span<const T>, const Shape&, Device); \
  template std::span<T> Tensor::host<T>() const;                             \
  template std::span<const T> Tensor::host<const T>() const;                 \
  template std::vector<T> Tensor::to_vector<T>() const;
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(double)
LOCKSTEP_INSTANTIATE(std::int64_t)
LOCKSTEP_INSTANTIATE(std::int32_t)
LOCKSTEP_INSTANTIATE(std::uint8_t)
#undef LOCKSTEP_INSTANTIATE

namespace {

std::atomic<Device> default_place{Device{}};

}  // namespace

Device default_device() {
  return default_place.load(std::memory_order_relaxed);
}

void set_default_device(Device device) {
  runtime::logical_device(device);  // throws if it does not exist
  default_place.store(device, std::memory_order_relaxed);
}

}  // namespace lockstep
