// Device memory and pinned host memory.
//
// Both are the process's own. Device memory starts as 0xFF bytes, which are NaNs.
#include <cstdlib>
#include <cstring>

#include "tests/emulated_gpu/runtime.h"

namespace emulated_gpu {

std::optional<Found> find_allocation(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  auto after = state().allocations.upper_bound(address);
  if (after == state().allocations.begin()) return std::nullopt;
  const auto& [start, allocation] = *std::prev(after);
  if (address >= start + allocation.num_bytes) return std::nullopt;
  return Found{start, allocation};
}

namespace {

std::uintptr_t address_of(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

void* allocate(std::size_t num_bytes, std::size_t alignment) {
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, num_bytes) != 0) return nullptr;
  std::memset(memory, 0xFF, num_bytes);
  return memory;
}

// Takes an allocation that starts at the pointer out of the books.
std::optional<Allocation> forget(void* pointer, Allocation::Kind kind) {
  const auto found = state().allocations.find(address_of(pointer));
  if (found == state().allocations.end() || found->second.kind != kind) return std::nullopt;
  const Allocation allocation = found->second;
  state().allocations.erase(found);
  return allocation;
}

cudaError_t allocate_on_gpu(void** pointer, std::size_t num_bytes) {
  wait_for_host_functions("cudaMalloc");
  const std::lock_guard lock(state().mutex);
  if (const cudaError_t error = check_call_is_safe(); error != cudaSuccess) return error;
  *pointer = nullptr;
  if (num_bytes == 0) return cudaSuccess;
  Gpu& gpu = *state().gpus[static_cast<std::size_t>(current_gpu())];
  auto& left = state().num_bytes_until_failure;
  if (num_bytes > state().num_bytes_per_gpu - gpu.num_used_bytes || (left && num_bytes > *left)) {
    return cudaErrorMemoryAllocation;
  }
  void* memory = allocate(num_bytes, 256);
  if (memory == nullptr) return cudaErrorMemoryAllocation;
  if (left) *left -= num_bytes;
  gpu.num_used_bytes += num_bytes;
  state().allocations[address_of(memory)] = {Allocation::Kind::device, current_gpu(), num_bytes};
  *pointer = memory;
  return cudaSuccess;
}

cudaError_t allocate_on_host(void** pointer, std::size_t num_bytes) {
  wait_for_host_functions("cudaHostAlloc");
  const std::lock_guard lock(state().mutex);
  if (const cudaError_t error = check_call_is_safe(); error != cudaSuccess) return error;
  *pointer = nullptr;
  if (num_bytes == 0) return cudaSuccess;
  void* memory = allocate(num_bytes, 4096);
  if (memory == nullptr) return cudaErrorMemoryAllocation;
  state().allocations[address_of(memory)] = {Allocation::Kind::pinned, current_gpu(), num_bytes};
  *pointer = memory;
  return cudaSuccess;
}

}  // namespace
}  // namespace emulated_gpu

using namespace emulated_gpu;

cudaError_t CUDARTAPI cudaMalloc(void** devPtr, std::size_t size) {
  return api_on_gpu(
      [&] { return devPtr == nullptr ? cudaErrorInvalidValue : allocate_on_gpu(devPtr, size); });
}

// "May perform implicit synchronization", and does: waits for the GPU that the memory is on.
cudaError_t CUDARTAPI cudaFree(void* devPtr) {
  return api_on_gpu([&] {
    if (devPtr == nullptr) return cudaSuccess;
    Allocation allocation;
    {
      const std::lock_guard lock(state().mutex);
      if (const cudaError_t error = check_call_is_safe(); error != cudaSuccess) return error;
      const auto forgotten = forget(devPtr, Allocation::Kind::device);
      if (!forgotten) return cudaErrorInvalidValue;
      allocation = *forgotten;
    }
    wait_for_gpu(allocation.gpu, "cudaFree");
    {
      const std::lock_guard lock(state().mutex);
      state().gpus[static_cast<std::size_t>(allocation.gpu)]->num_used_bytes -=
          allocation.num_bytes;
    }
    std::free(devPtr);
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaHostAlloc(void** pHost, std::size_t size, unsigned flags) {
  return api_on_gpu([&] {
    constexpr unsigned kKnown =
        cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
    if (pHost == nullptr || (flags & ~kKnown) != 0) return cudaErrorInvalidValue;
    return allocate_on_host(pHost, size);
  });
}

cudaError_t CUDARTAPI cudaFreeHost(void* ptr) {
  return api_on_gpu([&] {
    if (ptr == nullptr) return cudaSuccess;
    {
      const std::lock_guard lock(state().mutex);
      if (const cudaError_t error = check_call_is_safe(); error != cudaSuccess) return error;
      if (!forget(ptr, Allocation::Kind::pinned)) return cudaErrorInvalidValue;
    }
    for (std::size_t gpu = 0; gpu < state().gpus.size(); ++gpu) {
      wait_for_gpu(static_cast<int>(gpu), "cudaFreeHost");
    }
    std::free(ptr);
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return api_on_gpu([&] {
    const std::lock_guard lock(state().mutex);
    *total = state().num_bytes_per_gpu;
    *free = *total - state().gpus[static_cast<std::size_t>(current_gpu())]->num_used_bytes;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* ptr) {
  return api_on_gpu([&] {
    const std::lock_guard lock(state().mutex);
    *attributes = {};
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = -2;  // what CUDA answers for memory it does not know
    if (const auto found = find_allocation(ptr)) {
      auto* pointer = const_cast<void*>(ptr);
      const bool on_gpu = found->allocation.kind == Allocation::Kind::device;
      attributes->type = on_gpu ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
      attributes->device = found->allocation.gpu;
      attributes->devicePointer = pointer;
      attributes->hostPointer = on_gpu ? nullptr : pointer;
    }
    return cudaSuccess;
  });
}
