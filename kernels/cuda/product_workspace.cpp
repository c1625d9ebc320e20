#include "kernels/cuda/product_workspace.h"

#include <map>
#include <mutex>

#include "engine/runtime/logical_device.h"

namespace lockstep::kernels::cuda {

void* product_workspace(runtime::Stream& stream) {
  // A thread mostly works on one stream.
  thread_local const runtime::Stream* last_stream = nullptr;
  thread_local void* last = nullptr;
  if (last_stream == &stream) return last;

  static std::mutex& mutex = *new std::mutex;
  static auto& workspaces = *new std::map<const runtime::Stream*, void*>;
  const std::lock_guard lock(mutex);
  void*& workspace = workspaces[&stream];
  if (workspace == nullptr) {
    workspace = stream.device().memory().allocate(kProductWorkspaceBytes).data;
    // The pool may have handed out memory that enqueued work of the compute stream still uses.
    runtime::Stream& compute = stream.device().compute_stream();
    if (&stream != &compute) stream.wait(compute.record());
  }
  last_stream = &stream;
  last = workspace;
  return last;
}

}  // namespace lockstep::kernels::cuda
