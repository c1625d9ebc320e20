// The state behind the API: GPUs, memory, streams, events and captures.
//
// One lock guards all of it (State::mutex); nothing waits for work while it holds the lock. A
// handle that CUDA calls undefined when it is not valid (destroyed, of another kind) is found out
// here and answered with cudaErrorInvalidResourceHandle.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tests/emulated_gpu/control.h"
#include "tests/emulated_gpu/sync.h"

// A captured operation. The names of the structures behind handles are CUDA's.
struct CUgraphNode_st {
  std::function<void()> work;
  std::vector<std::size_t> dependencies;  // indices of nodes before it
  std::size_t lane = 0;  // nodes of one captured stream run in order, in a thread of their own
};

struct CUgraph_st {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;
  std::size_t num_lanes = 1;
};

namespace emulated_gpu {

struct Capture {
  cudaStreamCaptureMode mode{};
  std::thread::id thread;
  cudaStream_t origin = nullptr;
  std::unique_ptr<CUgraph_st> graph = std::make_unique<CUgraph_st>();
  std::vector<cudaStream_t> streams;  // that take part; the position is the lane
  bool is_invalid = false;
  bool has_ended = false;
};

// The position of a captured stream: the nodes on which its next one depends.
struct CapturePosition {
  std::shared_ptr<Capture> capture;
  std::vector<std::size_t> frontier;
};

}  // namespace emulated_gpu

struct CUstream_st {
  int gpu = 0;
  emulated_gpu::Worker worker;
  std::shared_ptr<emulated_gpu::Mark> tail;  // passes after the last task; null: none yet
  emulated_gpu::CapturePosition position;    // position.capture is null unless capturing
  cudaError_t next_kernel_fails = cudaSuccess;
};

struct CUevent_st {
  int gpu = 0;
  unsigned flags = 0;
  std::shared_ptr<emulated_gpu::Mark> mark;  // the last recording's; null: never recorded
  emulated_gpu::CapturePosition position;    // the last recording's, if in a capture
};

namespace emulated_gpu {

struct Allocation {
  enum class Kind { device, pinned };
  Kind kind{};
  int gpu = 0;
  std::size_t num_bytes = 0;
};

struct Gpu {
  std::size_t num_used_bytes = 0;
  std::atomic<bool> has_context{false};          // some call made one
  std::atomic<int> num_host_functions{0};        // that run now
  std::unordered_set<const void*> kernels;       // that are loaded
  std::atomic<cudaError_t> fault{cudaSuccess};   // once set, the GPU answers everything with it
  std::vector<std::shared_ptr<Mark>> abandoned;  // tails of destroyed streams
};

struct State {
  State();
  std::mutex mutex;
  std::vector<std::unique_ptr<Gpu>> gpus;
  std::size_t num_bytes_per_gpu = 0;
  enum class Peers { none, refused, possible } peers{};  // refused: promised, but not enabled
  std::set<std::pair<int, int>> enabled_peers;           // by current GPU and peer
  int driver_version = CUDART_VERSION;
  bool loads_kernels_lazily = true;
  std::mutex loader;  // held while a kernel is loaded
  std::chrono::seconds deadlock_after{};
  bool has_kernels = true;  // for these GPUs
  std::map<std::uintptr_t, Allocation> allocations;
  std::optional<std::size_t> num_bytes_until_failure;  // until cudaMalloc fails
  std::unordered_map<cudaStream_t, std::shared_ptr<CUstream_st>> streams;
  std::unordered_map<cudaEvent_t, std::shared_ptr<CUevent_st>> events;
  std::vector<std::weak_ptr<Capture>> captures;
};

State& state();

// --- of the calling thread
int current_gpu();
bool is_in_host_function();
cudaError_t& last_error();

// --- entering the API
cudaError_t remember(cudaError_t error);  // cudaGetLastError returns it

template <typename Body>
cudaError_t api(Body body) {
  if (is_in_host_function()) return remember(cudaErrorNotPermitted);
  return remember(body());
}

// For calls that a GPU whose kernel failed refuses, before and after.
template <typename Body>
cudaError_t api_on_gpu(Body body) {
  return api([&] {
    Gpu& gpu = *state().gpus[static_cast<std::size_t>(current_gpu())];
    gpu.has_context = true;
    if (const cudaError_t fault = gpu.fault; fault != cudaSuccess) return fault;
    const cudaError_t error = body();
    if (const cudaError_t fault = gpu.fault; fault != cudaSuccess) return fault;
    return error;
  });
}

// --- memory; REQUIRES: the lock is held
struct Found {
  std::uintptr_t start = 0;
  Allocation allocation;
};
std::optional<Found> find_allocation(const void* pointer);

// --- streams; REQUIRES: the lock is held
// nullptr for a handle that is none, as the default stream is here.
std::shared_ptr<CUstream_st> find_stream(cudaStream_t handle);
std::shared_ptr<CUevent_st> find_event(cudaEvent_t handle);
// Queues work on the stream, or makes it a node of the stream's capture. It is skipped on a GPU
// that has failed.
cudaError_t submit(CUstream_st& stream, std::function<void()> work);
// Queues a task that always runs.
std::shared_ptr<Mark> enqueue(CUstream_st& stream, std::function<void()> task);

// --- waits that CUDA may make inside a call; REQUIRES: the lock is not held. One that takes
// LOCKSTEP_EMULATED_DEADLOCK_SECONDS ends the program and names the call.
// Waits for all that is queued on the GPU.
void wait_for_gpu(int gpu, const char* call);
// Waits until no host function runs on the current GPU.
void wait_for_host_functions(const char* call);
// Loads a kernel for the current GPU before its first launch. CUDA may wait for all work of the GPU
// then, while other threads cannot load any.
void load_kernel(const void* kernel);

// --- captures; REQUIRES: the lock is held
// cudaErrorStreamCaptureUnsupported, and the end of the captures that it breaks, where the calling
// thread may not make a potentially unsafe call now (cudaThreadExchangeStreamCaptureMode).
cudaError_t check_call_is_safe();
// The same for a call that waits for, or asks about, a stream that captures.
cudaError_t check_not_capturing(const CUstream_st& stream);
bool is_capturing(const CUstream_st& stream);
std::size_t lane_of(Capture& capture, cudaStream_t stream);
void invalidate(Capture& capture);
void leave_capture(CUstream_st& stream);

}  // namespace emulated_gpu
