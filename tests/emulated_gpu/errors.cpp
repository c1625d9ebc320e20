// The names of the errors that this runtime gives.
#include <cuda_runtime_api.h>

const char* CUDARTAPI cudaGetErrorName(cudaError_t error) {
#define LOCKSTEP_NAME(name) \
  case name:                \
    return #name;
  switch (error) {
    LOCKSTEP_NAME(cudaSuccess)
    LOCKSTEP_NAME(cudaErrorInvalidValue)
    LOCKSTEP_NAME(cudaErrorMemoryAllocation)
    LOCKSTEP_NAME(cudaErrorInvalidConfiguration)
    LOCKSTEP_NAME(cudaErrorInsufficientDriver)
    LOCKSTEP_NAME(cudaErrorNoDevice)
    LOCKSTEP_NAME(cudaErrorInvalidDevice)
    LOCKSTEP_NAME(cudaErrorPeerAccessUnsupported)
    LOCKSTEP_NAME(cudaErrorNoKernelImageForDevice)
    LOCKSTEP_NAME(cudaErrorTooManyPeers)
    LOCKSTEP_NAME(cudaErrorInvalidResourceHandle)
#if CUDART_VERSION >= 12030
    LOCKSTEP_NAME(cudaErrorLossyQuery)
#endif
    LOCKSTEP_NAME(cudaErrorIllegalState)
    LOCKSTEP_NAME(cudaErrorNotReady)
    LOCKSTEP_NAME(cudaErrorIllegalAddress)
    LOCKSTEP_NAME(cudaErrorPeerAccessAlreadyEnabled)
    LOCKSTEP_NAME(cudaErrorNotPermitted)
    LOCKSTEP_NAME(cudaErrorNotSupported)
    LOCKSTEP_NAME(cudaErrorStreamCaptureUnsupported)
    LOCKSTEP_NAME(cudaErrorStreamCaptureInvalidated)
    LOCKSTEP_NAME(cudaErrorStreamCaptureMerge)
    LOCKSTEP_NAME(cudaErrorStreamCaptureUnmatched)
    LOCKSTEP_NAME(cudaErrorStreamCaptureUnjoined)
    LOCKSTEP_NAME(cudaErrorStreamCaptureIsolation)
    LOCKSTEP_NAME(cudaErrorCapturedEvent)
    LOCKSTEP_NAME(cudaErrorStreamCaptureWrongThread)
    default:
      return "unrecognized error code";
  }
#undef LOCKSTEP_NAME
}

const char* CUDARTAPI cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorIllegalAddress ? "an illegal memory access was encountered"
                                          : "an error of the emulated GPU";
}
