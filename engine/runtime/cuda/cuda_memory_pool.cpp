// Pools of device memory, and of pinned host memory, which GPUs access by themselves.
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "engine/core/error.h"
#include "engine/runtime/cuda/check.h"
#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/cuda_device.h"

namespace lockstep::runtime {
namespace {

using cuda::check;

class CudaMemoryPool;

// All pools of device memory: if a GPU is full, its other pools give back their free blocks.
struct AllPools {
  std::mutex mutex;
  std::vector<CudaMemoryPool*> pools;
};

AllPools& all_pools() {
  static AllPools& instance = *new AllPools;
  return instance;
}

// Lets this thread call cudaMalloc and cudaFree while it captures a graph: such memory belongs to
// no node of the graph. REQUIRES: a GPU is current, because this is a call into CUDA too.
class AllowDuringCapture {
 public:
  AllowDuringCapture() { cuda::ignore(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~AllowDuringCapture() { cuda::ignore(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  AllowDuringCapture(const AllowDuringCapture&) = delete;
  AllowDuringCapture& operator=(const AllowDuringCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

class CudaMemoryPool final : public MemoryPool {
 public:
  CudaMemoryPool(std::string description, int gpu, MemoryPool* counted_in)
      : MemoryPool(counted_in), description_(std::move(description)), gpu_(gpu) {
    const std::lock_guard lock(all_pools().mutex);
    all_pools().pools.push_back(this);
  }
  ~CudaMemoryPool() override {
    {
      const std::lock_guard lock(all_pools().mutex);
      std::erase(all_pools().pools, this);
    }
    release_cached();
  }

  int gpu() const { return gpu_; }

 protected:
  void* system_allocate(std::size_t num_bytes) override {
    const cuda::CurrentGpu current(gpu_);
    const AllowDuringCapture allow;
    void* data = nullptr;
    const cudaError_t error = cudaMalloc(&data, num_bytes);
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // clears the error: out of memory is a normal answer here
      return nullptr;
    }
    check(error, "cudaMalloc");
    return data;
  }
  // A failed GPU frees nothing, and destructors call this, so it must not throw.
  void system_release(void* data, std::size_t) override {
    const cuda::CurrentGpu current(gpu_, std::nothrow);
    const AllowDuringCapture allow;
    cuda::ignore(cudaFree(data));
  }
  void release_others() override {
    const std::lock_guard lock(all_pools().mutex);
    for (CudaMemoryPool* pool : all_pools().pools) {
      if (pool != this && pool->gpu_ == gpu_) pool->release_cached();
    }
  }
  std::size_t free_bytes() const override {
    const cuda::CurrentGpu current(gpu_);
    std::size_t num_free = 0;
    std::size_t num_total = 0;
    CUDA_CHECK(cudaMemGetInfo(&num_free, &num_total));
    return num_free;
  }
  std::string description() const override { return description_; }

 private:
  std::string description_;
  int gpu_;
};

// A GPU that this process already uses; 0 if there is none yet.
int gpu_in_use() {
  const std::lock_guard lock(all_pools().mutex);
  return all_pools().pools.empty() ? 0 : all_pools().pools.front()->gpu();
}

class PinnedMemoryPool final : public MemoryPool {
 protected:
  void* system_allocate(std::size_t num_bytes) override {
    const cuda::CurrentGpu current(gpu_in_use());
    const AllowDuringCapture allow;
    void* data = nullptr;
    const cudaError_t error = cudaHostAlloc(&data, num_bytes, cudaHostAllocPortable);
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    check(error, "cudaHostAlloc");
    return data;
  }
  void system_release(void* data, std::size_t) override {
    const cuda::CurrentGpu current(gpu_in_use(), std::nothrow);
    const AllowDuringCapture allow;
    cuda::ignore(cudaFreeHost(data));
  }
  std::size_t free_bytes() const override {
    return static_cast<std::size_t>(sysconf(_SC_AVPHYS_PAGES)) *
           static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  }
  std::string description() const override { return "the host's pinned memory"; }
};

}  // namespace

std::unique_ptr<MemoryPool> make_cuda_memory_pool(std::string description, int gpu,
                                                  MemoryPool* counted_in) {
  return std::make_unique<CudaMemoryPool>(std::move(description), gpu, counted_in);
}

MemoryPool& pinned_memory_pool() {
  static MemoryPool& pool = *new PinnedMemoryPool;
  return pool;
}

}  // namespace lockstep::runtime
