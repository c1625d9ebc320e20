// Streams: queues of work, each with a thread of its own.
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "tests/emulated_gpu/runtime.h"

namespace emulated_gpu {
namespace {

thread_local bool the_thread_is_in_a_host_function = false;

Gpu& gpu_of(const CUstream_st& stream) {
  return *state().gpus[static_cast<std::size_t>(stream.gpu)];
}

template <typename Condition>
void poll_until(const char* call, const char* what, const Condition& is_over) {
  const auto deadline = std::chrono::steady_clock::now() + state().deadlock_after;
  while (!is_over()) {
    if (std::chrono::steady_clock::now() > deadline) {
      std::fprintf(stderr, "emulated GPU: deadlock: %s waits for %s\n", call, what);
      std::abort();
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

cudaError_t create(cudaStream_t* handle, unsigned flags) {
  if (handle == nullptr || flags != cudaStreamNonBlocking) return cudaErrorInvalidValue;
  const std::lock_guard lock(state().mutex);
  auto stream = std::make_shared<CUstream_st>();
  stream->gpu = current_gpu();
  *handle = stream.get();
  state().streams[*handle] = std::move(stream);
  return cudaSuccess;
}

}  // namespace

bool is_in_host_function() {
  return the_thread_is_in_a_host_function;
}

std::shared_ptr<CUstream_st> find_stream(cudaStream_t handle) {
  const auto found = state().streams.find(handle);
  return found == state().streams.end() ? nullptr : found->second;
}

std::shared_ptr<Mark> enqueue(CUstream_st& stream, std::function<void()> task) {
  auto mark = std::make_shared<Mark>();
  stream.worker.submit([task = std::move(task), mark] {
    task();
    mark->pass();
  });
  stream.tail = mark;
  return mark;
}

cudaError_t submit(CUstream_st& stream, std::function<void()> work) {
  Gpu& gpu = gpu_of(stream);
  auto unless_failed = [&gpu, work = std::move(work)] {
    if (gpu.fault != cudaSuccess) return;
    work();
  };
  if (const auto& capture = stream.position.capture) {
    if (capture->is_invalid) return cudaErrorStreamCaptureInvalidated;
    auto node = std::make_unique<CUgraphNode_st>();
    node->work = std::move(unless_failed);
    node->dependencies = stream.position.frontier;
    node->lane = lane_of(*capture, &stream);
    stream.position.frontier = {capture->graph->nodes.size()};
    capture->graph->nodes.push_back(std::move(node));
    return cudaSuccess;
  }
  enqueue(stream, std::move(unless_failed));
  return cudaSuccess;
}

void wait_for_gpu(int gpu, const char* call) {
  std::vector<std::shared_ptr<Mark>> tails;
  {
    const std::lock_guard lock(state().mutex);
    for (const auto& [handle, stream] : state().streams) {
      if (stream->gpu == gpu && stream->tail) tails.push_back(stream->tail);
    }
    const auto& of = *state().gpus[static_cast<std::size_t>(gpu)];
    tails.insert(tails.end(), of.abandoned.begin(), of.abandoned.end());
  }
  for (const auto& tail : tails) {
    poll_until(call, "work of its GPU", [&] { return tail->has_passed(); });
  }
}

void wait_for_host_functions(const char* call) {
  const Gpu& gpu = *state().gpus[static_cast<std::size_t>(current_gpu())];
  poll_until(call, "a host function", [&] { return gpu.num_host_functions == 0; });
}

void load_kernel(const void* kernel) {
  if (!state().loads_kernels_lazily) return;
  Gpu& gpu = *state().gpus[static_cast<std::size_t>(current_gpu())];
  const auto is_loaded = [&] {
    const std::lock_guard lock(state().mutex);
    return gpu.kernels.contains(kernel);
  };
  if (is_loaded()) return;
  std::unique_lock loading(state().loader, std::defer_lock);
  poll_until("loading a kernel", "another thread that loads one",
             [&] { return loading.try_lock(); });
  if (is_loaded()) return;
  wait_for_gpu(current_gpu(), "loading a kernel");
  const std::lock_guard lock(state().mutex);
  gpu.kernels.insert(kernel);
}

}  // namespace emulated_gpu

using namespace emulated_gpu;

cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t* pStream, unsigned flags) {
  return api_on_gpu([&] { return create(pStream, flags); });
}

// Returns at once; what is queued still runs.
cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t handle) {
  return api_on_gpu([&] {
    const std::lock_guard lock(state().mutex);
    const auto found = state().streams.find(handle);
    if (found == state().streams.end()) return cudaErrorInvalidResourceHandle;
    CUstream_st& stream = *found->second;
    if (is_capturing(stream)) {
      invalidate(*stream.position.capture);
      leave_capture(stream);
    }
    auto& abandoned = gpu_of(stream).abandoned;
    std::erase_if(abandoned, [](const auto& tail) { return tail->has_passed(); });
    if (stream.tail) abandoned.push_back(stream.tail);
    state().streams.erase(found);
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaStreamSynchronize(cudaStream_t handle) {
  return api_on_gpu([&] {
    std::shared_ptr<Mark> tail;
    std::shared_ptr<CUstream_st> stream;
    {
      const std::lock_guard lock(state().mutex);
      stream = find_stream(handle);
      if (!stream) return cudaErrorInvalidResourceHandle;
      if (const cudaError_t error = check_not_capturing(*stream); error != cudaSuccess)
        return error;
      tail = stream->tail;
    }
    if (tail) tail->wait();
    return gpu_of(*stream).fault.load();
  });
}

cudaError_t CUDARTAPI cudaDeviceSynchronize() {
  return api_on_gpu([&] {
    {
      const std::lock_guard lock(state().mutex);
      for (const auto& [handle, stream] : state().streams) {
        if (stream->gpu != current_gpu() || !is_capturing(*stream)) continue;
        invalidate(*stream->position.capture);
        return cudaErrorStreamCaptureUnsupported;
      }
      if (const cudaError_t error = check_call_is_safe(); error != cudaSuccess) return error;
    }
    wait_for_gpu(current_gpu(), "cudaDeviceSynchronize");
    return cudaSuccess;
  });
}

// A host function may not call CUDA.
cudaError_t CUDARTAPI cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t fn, void* userData) {
  return api_on_gpu([&] {
    const std::lock_guard lock(state().mutex);
    const auto stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    return submit(*stream, [&gpu = gpu_of(*stream), fn, userData] {
      the_thread_is_in_a_host_function = true;
      ++gpu.num_host_functions;
      fn(userData);
      --gpu.num_host_functions;
      the_thread_is_in_a_host_function = false;
    });
  });
}
