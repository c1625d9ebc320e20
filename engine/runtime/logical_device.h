// Logical devices: what a name such as cpu:3 stands for.
//
// Each has its own memory pool, threads, compute and communication stream, also where several share
// one physical device. So a program written for eight devices runs, unchanged, on one.
#pragma once

#include <memory>
#include <string>

#include "engine/core/device.h"
#include "engine/runtime/memory_pool.h"
#include "engine/runtime/stream.h"
#include "engine/runtime/thread_pool.h"
#include "engine/runtime/worker.h"

namespace lockstep::runtime {

inline constexpr int kMaxCpuDevices = 64;

class LogicalDevice {
 public:
  LogicalDevice(Device device, std::size_t num_threads);
  ~LogicalDevice();
  LogicalDevice(const LogicalDevice&) = delete;
  LogicalDevice& operator=(const LogicalDevice&) = delete;

  Device device() const { return device_; }
  MemoryPool& memory() { return *memory_; }
  Stream& compute_stream() { return *compute_stream_; }
  Stream& comm_stream() { return *comm_stream_; }

  // Threads of the CPU kernels of this device.
  ThreadPool& threads() { return *threads_; }
  // Replaces the pool. REQUIRES: no kernel of this device is running.
  void set_num_threads(std::size_t num_threads);

  // The device's own line of work: runs its share of parallel_apply and of backward.
  Worker& worker() { return worker_; }

 private:
  Device device_;
  std::unique_ptr<MemoryPool> memory_;
  std::unique_ptr<ThreadPool> threads_;
  std::unique_ptr<Stream> compute_stream_;
  std::unique_ptr<Stream> comm_stream_;
  Worker worker_;
};

// The device behind a name; CPU devices are made when first named.
// Throws Error{Device} when there is none, and says which exist.
LogicalDevice& logical_device(Device device);

// How many logical devices a type offers: 64 for the CPU; 0 for cuda in a build without CUDA.
int num_devices(DeviceType type);

// Threads of every CPU device made from now on, and of those that exist. Default: 1.
// REQUIRES: no kernel is running.
void set_threads_per_device(std::size_t num_threads);
std::size_t threads_per_device();

// Cores this process may use (its affinity mask, not the machine's count).
std::size_t num_cores();

}  // namespace lockstep::runtime
