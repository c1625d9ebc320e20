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

// Rows of `width` bytes; a plain copy is one row.
struct Rows {
  void* to = nullptr;
  std::size_t to_pitch = 0;
  const void* from = nullptr;
  std::size_t from_pitch = 0;
  std::size_t width = 0;
  std::size_t height = 1;

  std::size_t to_extent() const { return (height - 1) * to_pitch + width; }
  std::size_t from_extent() const { return (height - 1) * from_pitch + width; }
};

void copy_rows(const Rows& rows) {
  for (std::size_t row = 0; row < rows.height; ++row) {
    std::memcpy(static_cast<char*>(rows.to) + row * rows.to_pitch,
                static_cast<const char*>(rows.from) + row * rows.from_pitch, rows.width);
  }
}

// Where [pointer, pointer + num_bytes) is; nothing if it leaves an allocation.
std::optional<Place> place_of(const void* pointer, std::size_t num_bytes) {
  const auto found = find_allocation(pointer);
  if (!found) return Place::pageable;
  const auto offset = reinterpret_cast<std::uintptr_t>(pointer) - found->start;
  if (offset + num_bytes > found->allocation.num_bytes) return std::nullopt;
  return found->allocation.kind == Allocation::Kind::device ? Place::gpu : Place::pinned;
}

// Whether what the call says about a pointer is true.
bool fits(cudaMemcpyKind kind, Place from, Place to) {
  const bool from_gpu = from == Place::gpu;
  const bool to_gpu = to == Place::gpu;
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !from_gpu && !to_gpu;
    case cudaMemcpyHostToDevice:
      return !from_gpu && to_gpu;
    case cudaMemcpyDeviceToHost:
      return from_gpu && !to_gpu;
    case cudaMemcpyDeviceToDevice:
      return from_gpu && to_gpu;
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

bool overlap(const Rows& rows) {
  const auto to = reinterpret_cast<std::uintptr_t>(rows.to);
  const auto from = reinterpret_cast<std::uintptr_t>(rows.from);
  return to < from + rows.from_extent() && from < to + rows.to_extent();
}

enum class Return { early, when_done };

cudaError_t copy(Rows rows, cudaMemcpyKind kind, cudaStream_t handle, Return requested) {
  std::shared_ptr<Mark> wait_for;
  {
    const std::lock_guard lock(state().mutex);
    const auto stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (rows.width == 0 || rows.height == 0) return cudaSuccess;
    if (rows.to == nullptr || rows.from == nullptr) return cudaErrorInvalidValue;
    if (rows.height > 1 && (rows.width > rows.to_pitch || rows.width > rows.from_pitch)) {
      return cudaErrorInvalidPitchValue;
    }
    const auto from = place_of(rows.from, rows.from_extent());
    const auto to = place_of(rows.to, rows.to_extent());
    if (!from || !to || overlap(rows)) return cudaErrorInvalidValue;
    if (!fits(kind, *from, *to)) return cudaErrorInvalidValue;
    // The call cannot wait. A copy from pageable memory to a GPU is accepted as on hardware: each
    // launch of the graph reads that memory again, whether or not it is still there.
    if (is_capturing(*stream) && (*to == Place::pageable || requested == Return::when_done)) {
      invalidate(*stream->position.capture);
      return cudaErrorStreamCaptureUnsupported;
    }
    std::shared_ptr<std::vector<char>> staged;
    if (*from == Place::pageable && *to == Place::gpu && !is_capturing(*stream)) {
      staged = std::make_shared<std::vector<char>>(rows.width * rows.height);
      const Visible visible;
      copy_rows({staged->data(), rows.width, rows.from, rows.from_pitch, rows.width, rows.height});
      rows.from = staged->data();
      rows.from_pitch = rows.width;
    }
    const cudaError_t error = submit(*stream, cudaGraphNodeTypeMemcpy, [rows, staged] {
      count(&Counters::num_copies);
      copy_rows(rows);
    });
    if (error != cudaSuccess) return error;
    const bool waits = *to == Place::pageable || (requested == Return::when_done && !staged &&
                                                  (*from != Place::gpu || *to != Place::gpu));
    if (waits) wait_for = stream->tail;
  }
  if (wait_for) wait_for->wait();
  return cudaSuccess;
}

Rows one_row(void* to, const void* from, std::size_t num_bytes) {
  return {to, num_bytes, from, num_bytes, num_bytes, 1};
}

cudaError_t fill(void* to, std::size_t pitch, int value, std::size_t width, std::size_t height,
                 cudaStream_t handle) {
  const std::lock_guard lock(state().mutex);
  const auto stream = find_stream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (width == 0 || height == 0) return cudaSuccess;
  if (height > 1 && width > pitch) return cudaErrorInvalidPitchValue;
  const auto place = place_of(to, (height - 1) * pitch + width);
  if (!place || *place == Place::pageable) return cudaErrorInvalidValue;
  return submit(*stream, cudaGraphNodeTypeMemset, [=] {
    for (std::size_t row = 0; row < height; ++row) {
      std::memset(static_cast<char*>(to) + row * pitch, value, width);
    }
  });
}

bool is_gpu(int gpu) {
  return gpu >= 0 && static_cast<std::size_t>(gpu) < state().gpus.size();
}

// The two GPUs are named, and must be those that the memory is on.
cudaError_t copy_between(void* to, int to_gpu, const void* from, int from_gpu,
                         std::size_t num_bytes, cudaStream_t stream) {
  if (!is_gpu(to_gpu) || !is_gpu(from_gpu)) return cudaErrorInvalidDevice;
  if (num_bytes > 0) {
    const std::lock_guard lock(state().mutex);
    const auto found_to = find_allocation(to);
    const auto found_from = find_allocation(from);
    const auto is_on = [](const std::optional<Found>& found, int gpu) {
      return found && found->allocation.kind == Allocation::Kind::device &&
             found->allocation.gpu == gpu;
    };
    if (!is_on(found_to, to_gpu) || !is_on(found_from, from_gpu)) return cudaErrorInvalidValue;
  }
  return copy(one_row(to, from, num_bytes), cudaMemcpyDeviceToDevice, stream, Return::early);
}

}  // namespace
}  // namespace emulated_gpu

using namespace emulated_gpu;

cudaError_t CUDARTAPI cudaMemcpy(void* dst, const void* src, std::size_t count,
                                 cudaMemcpyKind kind) {
  return api_on_gpu(
      [&] { return copy(one_row(dst, src, count), kind, nullptr, Return::when_done); });
}

cudaError_t CUDARTAPI cudaMemcpyAsync(void* dst, const void* src, std::size_t count,
                                      cudaMemcpyKind kind, cudaStream_t stream) {
  return api_on_gpu([&] { return copy(one_row(dst, src, count), kind, stream, Return::early); });
}

cudaError_t CUDARTAPI cudaMemcpy2D(void* dst, std::size_t dpitch, const void* src,
                                   std::size_t spitch, std::size_t width, std::size_t height,
                                   cudaMemcpyKind kind) {
  return api_on_gpu([&] {
    return copy({dst, dpitch, src, spitch, width, height}, kind, nullptr, Return::when_done);
  });
}

cudaError_t CUDARTAPI cudaMemcpy2DAsync(void* dst, std::size_t dpitch, const void* src,
                                        std::size_t spitch, std::size_t width, std::size_t height,
                                        cudaMemcpyKind kind, cudaStream_t stream) {
  return api_on_gpu([&] {
    return copy({dst, dpitch, src, spitch, width, height}, kind, stream, Return::early);
  });
}

cudaError_t CUDARTAPI cudaMemcpyPeer(void* dst, int dstDevice, const void* src, int srcDevice,
                                     std::size_t count) {
  return api_on_gpu([&] { return copy_between(dst, dstDevice, src, srcDevice, count, nullptr); });
}

cudaError_t CUDARTAPI cudaMemcpyPeerAsync(void* dst, int dstDevice, const void* src, int srcDevice,
                                          std::size_t count, cudaStream_t stream) {
  return api_on_gpu([&] { return copy_between(dst, dstDevice, src, srcDevice, count, stream); });
}

cudaError_t CUDARTAPI cudaMemset(void* devPtr, int value, std::size_t count) {
  return api_on_gpu([&] { return fill(devPtr, count, value, count, 1, nullptr); });
}

cudaError_t CUDARTAPI cudaMemsetAsync(void* devPtr, int value, std::size_t count,
                                      cudaStream_t stream) {
  return api_on_gpu([&] { return fill(devPtr, count, value, count, 1, stream); });
}

cudaError_t CUDARTAPI cudaMemset2DAsync(void* devPtr, std::size_t pitch, int value,
                                        std::size_t width, std::size_t height,
                                        cudaStream_t stream) {
  return api_on_gpu([&] { return fill(devPtr, pitch, value, width, height, stream); });
}
