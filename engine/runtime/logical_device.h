// Logical devices: the resources behind a name such as cpu:3.
//
// Each has its own memory pool, threads, compute, communication and copy stream, even if several
// share one physical device. So a program written for eight devices runs unchanged on one.
#pragma once

#include <atomic>
#include <memory>

#include "engine/core/device.h"
#include "engine/runtime/memory_pool.h"
#include "engine/runtime/stream.h"
#include "engine/runtime/threads.h"

namespace lockstep::runtime {

inline constexpr int kMaxCpuDevices = 64;
inline constexpr int kMaxCudaDevices = 64;
inline constexpr int kNoGpu = -1;

class LogicalDevice {
 public:
  // A device of the CPU.
  LogicalDevice(Device device, std::size_t num_threads);
  // A device of a physical GPU, by CUDA's ordinal.
  struct OnGpu {
    int gpu = 0;
  };
  LogicalDevice(Device device, OnGpu on);
  ~LogicalDevice();
  LogicalDevice(const LogicalDevice&) = delete;
  LogicalDevice& operator=(const LogicalDevice&) = delete;

  Device device() const { return device_; }
  // The pool that new tensors come from.
  MemoryPool& memory() { return *current_memory_.load(std::memory_order_acquire); }
  // The device's own pool, which also counts the memory that its other pools hold.
  MemoryPool& own_memory() { return *memory_; }
  // For blocks that any thread takes and that only events order: its free blocks are free whatever
  // the compute stream still does. It is never a graph's pool. On the CPU it is the device's own
  // pool.
  MemoryPool& copy_pool() { return copy_pool_ ? *copy_pool_ : *memory_; }
  Stream& compute_stream() { return *compute_stream_; }
  Stream& comm_stream() { return *comm_stream_; }
  Stream& copy_stream() { return *copy_stream_; }

  // The physical GPU behind the device (CUDA's ordinal), or kNoGpu.
  int gpu() const { return gpu_; }

  // Lets new tensors come from another pool, which outlives them; nullptr: from the device's own
  // pool again. REQUIRES: no other thread allocates on this device meanwhile.
  void set_memory(MemoryPool* pool) {
    current_memory_.store(pool != nullptr ? pool : memory_.get(), std::memory_order_release);
  }

  // Threads of the CPU kernels of this device.
  ThreadPool& threads() { return *threads_; }
  // Replaces the pool. REQUIRES: no kernel of this device is running.
  void set_num_threads(std::size_t num_threads);

  // The thread of the device's line of work: its tasks of parallel_apply and of backward, one at a
  // time. The device on which a pass begins uses the caller's thread instead, and an idle thread
  // may help another device (autograd/device_tasks.h).
  Worker& worker() { return worker_; }

 private:
  Device device_;
  int gpu_ = kNoGpu;
  std::unique_ptr<MemoryPool> memory_;
  std::unique_ptr<MemoryPool> copy_pool_;  // nullptr on the CPU
  std::atomic<MemoryPool*> current_memory_;
  std::unique_ptr<ThreadPool> threads_;
  std::unique_ptr<Stream> compute_stream_;
  std::unique_ptr<Stream> comm_stream_;
  std::unique_ptr<Stream> copy_stream_;
  Worker worker_;
};

// The device behind a name, made when it is first named.
// Throws Error{Device} if there is none, and says which exist.
LogicalDevice& logical_device(Device device);

// The number of logical devices of a type: 64 for the CPU; for cuda the number of GPUs, or of
// declared devices.
int num_devices(DeviceType type);

// The physical GPU of a CUDA device. Throws Error{Device} if there is none, and says which exist.
int gpu_behind(Device device);
// True once a logical CUDA device has been made.
bool has_cuda_devices_in_use();

// True if kernels of one device can access the other's memory. REQUIRES: both are of one type.
bool reaches(const LogicalDevice& reader, const LogicalDevice& owner);

// Sets the threads of every CPU device, existing and future. Default: 1.
// REQUIRES: no kernel is running.
void set_threads_per_device(std::size_t num_threads);
std::size_t threads_per_device();

}  // namespace lockstep::runtime
