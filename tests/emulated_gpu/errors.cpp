// The names and texts of errors, as CUDA gives them.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <iterator>

namespace {

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};

#define LOCKSTEP_ERROR(name, text) \
  { name, #name, text }
constexpr ErrorText kErrors[] = {
    LOCKSTEP_ERROR(cudaSuccess, "no error"),
    LOCKSTEP_ERROR(cudaErrorInvalidValue, "invalid argument"),
    LOCKSTEP_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    LOCKSTEP_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    LOCKSTEP_ERROR(cudaErrorInsufficientDriver,
                   "CUDA driver version is insufficient for CUDA runtime version"),
    LOCKSTEP_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    LOCKSTEP_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    LOCKSTEP_ERROR(cudaErrorPeerAccessUnsupported,
                   "peer access is not supported between these two devices"),
    LOCKSTEP_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
#if CUDART_VERSION >= 12030
    LOCKSTEP_ERROR(cudaErrorLossyQuery, "attempted introspection would be semantically lossy"),
#endif
    LOCKSTEP_ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    LOCKSTEP_ERROR(cudaErrorNotReady, "device not ready"),
    LOCKSTEP_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    LOCKSTEP_ERROR(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    LOCKSTEP_ERROR(cudaErrorNotPermitted, "operation not permitted"),
    LOCKSTEP_ERROR(cudaErrorNotSupported, "operation not supported"),
    LOCKSTEP_ERROR(cudaErrorStreamCaptureUnsupported,
                   "operation not permitted when stream is capturing"),
    LOCKSTEP_ERROR(cudaErrorStreamCaptureInvalidated,
                   "operation failed due to a previous error during capture"),
    LOCKSTEP_ERROR(cudaErrorStreamCaptureMerge,
                   "operation would result in a merge of separate capture sequences"),
    LOCKSTEP_ERROR(cudaErrorStreamCaptureUnmatched,
                   "capture was not ended in the same stream as it began"),
    LOCKSTEP_ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    LOCKSTEP_ERROR(cudaErrorStreamCaptureIsolation,
                   "dependency created on uncaptured work in another stream"),
    LOCKSTEP_ERROR(cudaErrorCapturedEvent,
                   "operation not permitted on an event last recorded in a capturing stream"),
    LOCKSTEP_ERROR(cudaErrorStreamCaptureWrongThread,
                   "attempt to terminate a thread-local capture sequence from another thread"),
};
#undef LOCKSTEP_ERROR

const ErrorText* find(cudaError_t error) {
  const auto* found = std::find_if(std::begin(kErrors), std::end(kErrors),
                                   [&](const ErrorText& row) { return row.error == error; });
  return found == std::end(kErrors) ? nullptr : found;
}

}  // namespace

const char* CUDARTAPI cudaGetErrorName(cudaError_t error) {
  const ErrorText* found = find(error);
  return found == nullptr ? "unrecognized error code" : found->name;
}

const char* CUDARTAPI cudaGetErrorString(cudaError_t error) {
  const ErrorText* found = find(error);
  return found == nullptr ? "unrecognized error code" : found->text;
}
