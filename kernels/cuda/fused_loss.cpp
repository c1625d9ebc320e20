#include "kernels/cuda/fused_loss.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "engine/core/error.h"
#include "kernels/cuda/cuda_backend.h"

namespace lockstep::kernels::cuda {
namespace {

// Read at every step: tests change it.
bool is_on_by_environment() {
  const char* text = std::getenv("LOCKSTEP_FUSED_LOSS");
  const std::string_view word = text ? text : "";
  require(word.empty() || word == "on" || word == "off", ErrorCode::Usage, "LOCKSTEP_FUSED_LOSS",
          "is '{}'; use on or off", word);
  return word != "off";
}

}  // namespace

bool CudaBackend::fuses_linear_cross_entropy(DType dtype, std::size_t rows, std::size_t in,
                                             std::size_t classes) const {
  const bool has_kernel = dtype == DType::float32 || dtype == DType::float64;
  if (!has_kernel || classes == 0 || classes > kFusedLossClasses) return false;
  const std::size_t num_weights = kFusedLossBytes / size_of(dtype);
  return in <= num_weights / classes &&
         rows <= kFusedLossWork / std::max<std::size_t>(in, 1) / classes && is_on_by_environment();
}

}  // namespace lockstep::kernels::cuda
