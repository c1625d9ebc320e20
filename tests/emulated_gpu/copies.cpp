// Copies and fills.
//
// How long a call blocks follows "API synchronization behavior" in the CUDA runtime documentation:
// pageable host memory is read before the call returns (staged), and a copy to pageable memory
// returns when it is done; copies from and to pinned memory and between GPUs are asynchronous in
// the *Async forms.
#include <cstring>

#include "tests/emulated_gpu/runtime.h"

namespace emulated_gpu {
namespace {

enum class Place { gpu, pinned, pageable };

// The kind of memory at [pointer, pointer + num_bytes); nullopt if it leaves an allocation.
std::optional<Place> place_of(const void* pointer, std::size_t num_bytes) {
  const auto found = find_allocation(pointer);
  if (!found) return Place::pageable;
  const auto offset = reinterpret_cast<std::uintptr_t>(pointer) - found->start;
  if (offset + num_bytes > found->allocation.num_bytes) return std::nullopt;
  return found->allocation.kind == Allocation::Kind::device ? Place::gpu : Place::pinned;
}

// True if the call's statement about the pointers is correct.
bool fits(cudaMemcpyKind kind, Place from, Place to) {
  if (kind == cudaMemcpyDefault) return true;
  const bool from_gpu = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  const bool to_gpu = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  return from_gpu == (from == Place::gpu) && to_gpu == (to == Place::gpu);
}

// True if the stream's GPU may copy between the host and the memory at `pointer`. That of another
// GPU counts as out of reach without peer access: CUDA's documentation does not say otherwise.
bool reaches(const CUstream_st& stream, const void* pointer) {
  const auto found = find_allocation(pointer);
  if (!found || found->allocation.kind != Allocation::Kind::device) return true;
  const int gpu = found->allocation.gpu;
  return gpu == stream.gpu || state().enabled_peers.contains({stream.gpu, gpu});
}

bool overlap(const void* a, const void* b, std::size_t num_bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(a);
  const auto second = reinterpret_cast<std::uintptr_t>(b);
  return first < second + num_bytes && second < first + num_bytes;
}

cudaError_t copy(void* to, const void* from, std::size_t num_bytes, cudaMemcpyKind kind,
                 cudaStream_t handle) {
  std::shared_ptr<Mark> wait_for;
  {
    const std::lock_guard lock(state().mutex);
    const auto stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (num_bytes == 0) return cudaSuccess;
    if (to == nullptr || from == nullptr) return cudaErrorInvalidValue;
    const auto source = place_of(from, num_bytes);
    const auto target = place_of(to, num_bytes);
    if (!source || !target || overlap(to, from, num_bytes)) return cudaErrorInvalidValue;
    if (!fits(kind, *source, *target)) return cudaErrorInvalidValue;
    const bool is_between_gpus = *source == Place::gpu && *target == Place::gpu;
    if (!is_between_gpus && (!reaches(*stream, from) || !reaches(*stream, to))) {
      return cudaErrorInvalidValue;
    }
    // The call cannot wait. A copy from pageable memory to a GPU is accepted as on hardware: each
    // launch of the graph reads that memory again, whether or not it is still there.
    if (is_capturing(*stream) && *target == Place::pageable) {
      invalidate(*stream->position.capture);
      return cudaErrorStreamCaptureUnsupported;
    }
    std::shared_ptr<std::vector<char>> staged;
    if (*source == Place::pageable && *target == Place::gpu && !is_capturing(*stream)) {
      staged = std::make_shared<std::vector<char>>(num_bytes);
      std::memcpy(staged->data(), from, num_bytes);
      from = staged->data();
    }
    const cudaError_t error =
        submit(*stream, [to, from, num_bytes, staged] { std::memcpy(to, from, num_bytes); });
    if (error != cudaSuccess) return error;
    if (*target == Place::pageable) wait_for = stream->tail;
  }
  if (wait_for) wait_for->wait();
  return cudaSuccess;
}

cudaError_t fill(void* to, int value, std::size_t num_bytes, cudaStream_t handle) {
  const std::lock_guard lock(state().mutex);
  const auto stream = find_stream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (num_bytes == 0) return cudaSuccess;
  const auto place = place_of(to, num_bytes);
  if (!place || *place == Place::pageable) return cudaErrorInvalidValue;
  return submit(*stream, [=] { std::memset(to, value, num_bytes); });
}

}  // namespace
}  // namespace emulated_gpu

using namespace emulated_gpu;

// For tests alone: waits for all streams of the GPU, whether or not they would order themselves
// with the default stream.
cudaError_t CUDARTAPI cudaMemcpy(void* dst, const void* src, std::size_t count, cudaMemcpyKind) {
  return api_on_gpu([&] {
    wait_for_gpu(current_gpu(), "cudaMemcpy");
    std::memcpy(dst, src, count);
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaMemcpyAsync(void* dst, const void* src, std::size_t count,
                                      cudaMemcpyKind kind, cudaStream_t stream) {
  return api_on_gpu([&] { return copy(dst, src, count, kind, stream); });
}

cudaError_t CUDARTAPI cudaMemsetAsync(void* devPtr, int value, std::size_t count,
                                      cudaStream_t stream) {
  return api_on_gpu([&] { return fill(devPtr, value, count, stream); });
}
