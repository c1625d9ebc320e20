#include "kernels/cuda/launch.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/core/error.h"
#include "engine/runtime/cuda/check.h"
#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/physical_gpus.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_backend.h"

namespace lockstep::kernels::cuda {

namespace {

bool is_blocking() {
  static const bool blocking = [] {
    const char* value = std::getenv("LOCKSTEP_CUDA_BLOCKING");
    return value != nullptr && std::string_view(value) == "1";
  }();
  return blocking;
}

[[noreturn]] void fail_kernel(const char* operation, cudaError_t error, int gpu) {
  cudaGetLastError();
  if (error == cudaErrorNoKernelImageForDevice) {
    const runtime::PhysicalGpu& card = runtime::physical_gpus()[static_cast<std::size_t>(gpu)];
    fail(ErrorCode::Device, operation,
         "this build has no code for GPU {}, {} of compute capability {}.{}; configure it with "
         "-DCMAKE_CUDA_ARCHITECTURES={}{}",
         gpu, card.name, card.major, card.minor, card.major, card.minor);
  }
  fail(ErrorCode::Cuda, operation, "its CUDA kernel failed: {} ({})", cudaGetErrorString(error),
       cudaGetErrorName(error));
}

}  // namespace

LaunchShape covering(std::size_t num_elements, unsigned threads, unsigned max_blocks) {
  const std::size_t blocks = (num_elements + threads - 1) / threads;
  return {dim3(static_cast<unsigned>(std::clamp<std::size_t>(blocks, 1, max_blocks))),
          dim3(threads)};
}

LaunchScope::LaunchScope(runtime::Stream& stream, const char* operation)
    : stream_(runtime::cuda::cuda_stream(stream)), operation_(operation), current_(stream_.gpu()) {}

void LaunchScope::finish(cudaError_t launched) {
  if (launched != cudaSuccess) fail_kernel(operation_, launched, stream_.gpu());
  if (!is_blocking() || stream_.is_capturing()) return;
  const cudaError_t ran = cudaStreamSynchronize(stream_.handle());
  if (ran != cudaSuccess) fail_kernel(operation_, ran, stream_.gpu());
}

namespace {

// A stream keeps this for its kernels.
struct Kept {
  std::mutex mutex;  // held to make a part
  std::optional<Workspace> workspace;
  void* product_workspace = nullptr;
  std::vector<std::unique_ptr<runtime::Stream>> side_streams;
};

Kept& kept_by(const runtime::Stream& stream) {
  // A thread usually works on one stream.
  thread_local const runtime::Stream* last_stream = nullptr;
  thread_local Kept* last = nullptr;
  if (last_stream == &stream) return *last;
  // Never destroyed, like the devices.
  static auto& mutex = *new std::mutex;
  static auto& all = *new std::map<const runtime::Stream*, Kept>;
  const std::lock_guard lock(mutex);
  last_stream = &stream;
  last = &all[&stream];
  return *last;
}

// Takes memory that only `stream` uses from now on.
void* allocate(runtime::Stream& stream, std::size_t num_bytes, const char* operation) {
  require(!runtime::cuda::cuda_stream(stream).is_capturing(), ErrorCode::State, operation,
          "the stream's first one cannot be captured; run the step once before capturing it");
  void* const memory = stream.device().memory().allocate(num_bytes).data;
  // The pool may give out memory that enqueued work of the compute stream still uses.
  runtime::Stream& compute = stream.device().compute_stream();
  if (&stream != &compute) stream.wait(compute.record());
  return memory;
}

Workspace reserve(runtime::Stream& stream) {
  constexpr std::size_t kDoubles = kMaxPartials + 2 * kMaxColumns + 1;
  constexpr std::size_t kBytes = kDoubles * sizeof(double) + kMaxTickets * sizeof(unsigned);
  auto* const memory = static_cast<double*>(allocate(stream, kBytes, "reduction"));
  Workspace result;
  result.partials = memory;
  result.column_sums = result.partials + kMaxPartials;
  result.carry = result.column_sums + 2 * kMaxColumns;
  result.tickets = reinterpret_cast<unsigned*>(result.carry + 1);
  const runtime::cuda::CudaStream& cuda = runtime::cuda::cuda_stream(stream);
  const runtime::cuda::CurrentGpu current(cuda.gpu());
  CUDA_CHECK(cudaMemsetAsync(memory, 0, kBytes, cuda.handle()));
  return result;
}

}  // namespace

void* product_workspace(runtime::Stream& stream) {
  Kept& kept = kept_by(stream);
  const std::lock_guard lock(kept.mutex);
  void*& found = kept.product_workspace;
  if (found == nullptr) found = allocate(stream, kProductWorkspaceBytes, "matmul");
  return found;
}

Workspace workspace_of(runtime::Stream& stream) {
  Kept& kept = kept_by(stream);
  const std::lock_guard lock(kept.mutex);
  if (!kept.workspace) kept.workspace = reserve(stream);
  return *kept.workspace;
}

namespace {

// The stream's side stream of that number, from 0.
runtime::Stream& side_stream(runtime::Stream& stream, std::size_t number) {
  Kept& kept = kept_by(stream);
  const std::lock_guard lock(kept.mutex);
  if (number >= kept.side_streams.size()) {
    const runtime::cuda::CudaStream& cuda = runtime::cuda::cuda_stream(stream);
    kept.side_streams.push_back(
        std::make_unique<runtime::cuda::CudaStream>(stream.device(), cuda.gpu(), cuda.fault()));
  }
  return *kept.side_streams[number];
}

}  // namespace

bool is_in_step_graph(const runtime::Stream& stream) {
  runtime::LogicalDevice& device = stream.device();
  return &device.memory() != &device.own_memory();
}

void side_by_side(runtime::Stream& stream,
                  std::initializer_list<std::function<void(runtime::Stream&)>> parts) {
  const std::shared_ptr<runtime::Event> start = stream.record();
  std::vector<std::shared_ptr<runtime::Event>> ends;
  for (const auto* part = parts.begin() + 1; part != parts.end(); ++part) {
    runtime::Stream& side = side_stream(stream, ends.size());
    side.wait(start);
    (*part)(side);
    ends.push_back(side.record());
  }
  (*parts.begin())(stream);
  for (const auto& end : ends) stream.wait(end);
}

}  // namespace lockstep::kernels::cuda

namespace lockstep::kernels {

Backend* cuda_backend() {
  // Never destroyed: tensors in static variables may be used until the very end.
  static cuda::CudaBackend& backend = *new cuda::CudaBackend;
  return &backend;
}

}  // namespace lockstep::kernels
