// The interface to engine/runtime/cuda: the parts of a logical CUDA device. A build without CUDA
// links no_cuda.cpp in its place.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "engine/runtime/memory_pool.h"
#include "engine/runtime/stream.h"

namespace lockstep::runtime {

struct DeviceParts {
  std::unique_ptr<MemoryPool> memory;
  std::unique_ptr<MemoryPool> copy_pool;  // counted in memory
  std::unique_ptr<Stream> compute_stream;
  std::unique_ptr<Stream> comm_stream;
  std::unique_ptr<Stream> copy_stream;
};

// gpu: the physical GPU, by CUDA's ordinal. Throws Error{Cuda} if it cannot be used, and
// Error{Device} in a build without CUDA.
DeviceParts make_cuda_parts(LogicalDevice& device, int gpu);

// A pool of a GPU's memory. counted_in: the pool that the device already has, if this one is an
// additional one; else nullptr.
std::unique_ptr<MemoryPool> make_cuda_memory_pool(std::string description, int gpu,
                                                  MemoryPool* counted_in);

// Host memory that GPUs access without the CPU's help. Never destroyed. Plain host memory without
// CUDA.
MemoryPool& pinned_memory_pool();

// Enqueues a copy on a stream of a CUDA device; each side is device memory of any GPU, or host
// memory. Pageable host memory has been read or written when the call returns. Pinned memory must
// stay unchanged until the copy is done.
void copy_on_cuda_stream(Stream& stream, void* to, const void* from, std::size_t num_bytes);

// One side of a copy: memory, and the device that it belongs to.
struct Source {
  LogicalDevice& device;
  const void* data;
};
struct Destination {
  LogicalDevice& device;
  void* data;
};

// The copy follows all earlier work of both compute streams and precedes all their later work. The
// calling thread waits only if the CPU reads or writes: from the CPU until the bytes have been
// taken, to the CPU until they have arrived. Between GPUs without peer access it goes through the
// host. REQUIRES: at least one device is a CUDA device.
void copy_between(Destination to, Source from, std::size_t num_bytes);

// True if copies from this host memory to the GPU continue after the call that started them.
bool is_pinned(int gpu, const void* memory);

}  // namespace lockstep::runtime
