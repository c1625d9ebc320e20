#include "engine/core/error.h"
#include "kernels/checks.h"

namespace lockstep::kernels::checks {

void fail_dtype(DeviceType device, const char* operation, DType dtype) {
  fail(ErrorCode::DType, operation,
       "the {} backend has no kernel for {}; convert to float32 or float64",
       device == DeviceType::cpu ? "CPU" : "CUDA", to_string(dtype));
}

}  // namespace lockstep::kernels::checks
