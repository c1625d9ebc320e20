#include "engine/runtime/cuda/check.h"

#include <string_view>

#include "engine/core/error.h"

namespace lockstep::runtime::cuda {

void fail_call(const char* call, cudaError_t error) {
  // The message shows only the name of "cudaMalloc(&data, num_bytes)", which a reader can look up.
  const std::string_view text(call);
  const std::string_view name = text.substr(0, text.find('('));
  cudaGetLastError();  // clears an error that is not sticky
  const bool breaks_capture =
      error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorStreamCaptureWrongThread;
  fail(ErrorCode::Cuda, name, "failed: {} ({}){}", cudaGetErrorString(error),
       cudaGetErrorName(error),
       breaks_capture ? "; a step that is captured as a graph may not wait for the device or copy "
                        "to or from plain host memory: do that outside of it, or run the step "
                        "without a graph"
                      : "");
}

}  // namespace lockstep::runtime::cuda
