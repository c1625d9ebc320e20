#include "kernels/cuda/fused_loss.h"

#include <algorithm>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/environment_switch.h"

namespace lockstep::kernels::cuda {

bool CudaBackend::fuses_linear_cross_entropy(DType dtype, std::size_t rows, std::size_t in,
                                             std::size_t classes) const {
  const bool has_kernel = dtype == DType::float32 || dtype == DType::float64;
  if (!has_kernel || classes == 0 || classes > kFusedLossClasses) return false;
  const std::size_t num_weights = kFusedLossBytes / size_of(dtype);
  return in <= num_weights / classes &&
         rows <= kFusedLossWork / std::max<std::size_t>(in, 1) / classes &&
         is_switched_on("LOCKSTEP_FUSED_LOSS");
}

}  // namespace lockstep::kernels::cuda
