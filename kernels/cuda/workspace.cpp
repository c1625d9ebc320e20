#include "kernels/cuda/workspace.h"

#include <map>
#include <mutex>

#include "engine/core/error.h"
#include "engine/runtime/cuda/check.h"
#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/logical_device.h"

namespace lockstep::kernels::cuda {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<const runtime::Stream*, Workspace> workspaces;
  std::map<const runtime::Stream*, void*> product_workspaces;
};

Registry& registry() {
  // Never destroyed, like the devices.
  static Registry& instance = *new Registry;
  return instance;
}

// Memory that `stream` uses from now on, and keeps.
void* allocate(runtime::Stream& stream, std::size_t num_bytes, const char* operation) {
  require(!runtime::cuda::cuda_stream(stream).is_capturing(), ErrorCode::State, operation,
          "the stream's first one cannot be captured; run the step once before capturing it");
  void* const memory = stream.device().memory().allocate(num_bytes).data;
  // The pool may have handed out memory that enqueued work of the compute stream still uses.
  runtime::Stream& compute = stream.device().compute_stream();
  if (&stream != &compute) stream.wait(compute.record());
  return memory;
}

Workspace reserve(runtime::Stream& stream) {
  constexpr std::size_t kDoubles = kMaxPartials + 2 * kMaxColumns + 1;
  constexpr std::size_t kBytes = kDoubles * sizeof(double) + (kMaxTickets + 1) * sizeof(unsigned);
  auto* const memory = static_cast<double*>(allocate(stream, kBytes, "reduction"));
  Workspace result;
  result.partials = memory;
  result.column_sums = result.partials + kMaxPartials;
  result.carry = result.column_sums + 2 * kMaxColumns;
  result.tickets = reinterpret_cast<unsigned*>(result.carry + 1);
  result.step_ticket = result.tickets + kMaxTickets;
  const runtime::cuda::CudaStream& cuda = runtime::cuda::cuda_stream(stream);
  const runtime::cuda::CurrentGpu current(cuda.gpu());
  CUDA_CHECK(cudaMemsetAsync(memory, 0, kBytes, cuda.handle()));
  return result;
}

}  // namespace

void* product_workspace(runtime::Stream& stream) {
  // A thread mostly works on one stream.
  thread_local const runtime::Stream* last_stream = nullptr;
  thread_local void* last = nullptr;
  if (last_stream == &stream) return last;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  void*& found = all.product_workspaces[&stream];
  if (found == nullptr) found = allocate(stream, kProductWorkspaceBytes, "matmul");
  last_stream = &stream;
  last = found;
  return last;
}

Workspace workspace_of(runtime::Stream& stream) {
  // A thread mostly works on one stream.
  thread_local const runtime::Stream* last_stream = nullptr;
  thread_local Workspace last;
  if (last_stream == &stream) return last;
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  auto found = all.workspaces.find(&stream);
  if (found == all.workspaces.end()) {
    found = all.workspaces.emplace(&stream, reserve(stream)).first;
  }
  last_stream = &stream;
  last = found->second;
  return last;
}

}  // namespace lockstep::kernels::cuda
