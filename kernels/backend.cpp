#include "kernels/backend.h"

#include <atomic>

#include "engine/core/error.h"
#include "kernels/calls.h"
#include "kernels/cpu/eigen_backend.h"
#include "kernels/element_traits.h"

namespace lockstep::kernels {

namespace {

std::atomic<Backend*> instead_of_cpu{nullptr};
std::atomic<Backend*> instead_of_cuda{nullptr};

std::atomic<Backend*>& instead_of(DeviceType type) {
  return type == DeviceType::cpu ? instead_of_cpu : instead_of_cuda;
}

}  // namespace

void set_backend(DeviceType type, Backend* backend) {
  instead_of(type).store(backend, std::memory_order_release);
}

Backend& backend(DeviceType type) {
  if (Backend* installed = instead_of(type).load(std::memory_order_acquire)) [[unlikely]] {
    return *installed;
  }
  if (type == DeviceType::cpu) return cpu_backend();
  static Backend* const cuda = cuda_backend();
  require(cuda != nullptr, ErrorCode::Device, "backend",
          "this build has no CUDA; use the device cpu, or build the cuda preset");
  return *cuda;
}

void fail_dtype(DeviceType device, const char* operation, DType dtype) {
  fail(ErrorCode::DType, operation,
       "the {} backend has no kernel for {}; convert to float32 or float64",
       device == DeviceType::cpu ? "CPU" : "CUDA", to_string(dtype));
}

void require_as_large(const char* operation, const ConstTensorView& first, const NamedView& other) {
  require(other.view.num_elements == first.num_elements, ErrorCode::Shape, operation,
          "{} has size {}, expected {}", other.name, other.view.num_elements, first.num_elements);
}

void require_alike(const char* operation, const ConstTensorView& first,
                   std::initializer_list<NamedView> others) {
  for (const auto& [name, view] : others) {
    if (view.dtype == first.dtype && view.num_elements == first.num_elements) continue;
    require(view.dtype == first.dtype, ErrorCode::DType, operation, "{} is {}, expected {}", name,
            to_string(view.dtype), to_string(first.dtype));
    require_as_large(operation, first, {name, view});
  }
}

void check_ordered_reduce(const OrderedReduce& call, std::size_t most_sources) {
  constexpr const char* kName = "ordered_reduce";
  require(!call.sources.empty(), ErrorCode::Shape, kName, "needs at least one source");
  require(call.sources.size() <= most_sources && call.copies.size() < most_sources,
          ErrorCode::Shape, kName, "takes at most {} sources and outputs, found {} and {}",
          most_sources, call.sources.size(), call.copies.size() + 1);
  for (const ConstTensorView& source : call.sources) {
    require_alike(kName, call.y, {{"a source", source}});
  }
  for (const TensorView& copy : call.copies) require_alike(kName, call.y, {{"a copy", copy}});
  require(is_floating_point(call.y.dtype) || call.factor == 1, ErrorCode::DType, kName,
          "{} can be reduced with factor 1 only, found {}", to_string(call.y.dtype), call.factor);
}

}  // namespace lockstep::kernels
