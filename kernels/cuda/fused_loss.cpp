#include "kernels/cuda/fused_loss.h"

#include <cstdlib>
#include <string_view>

#include "engine/core/error.h"
#include "kernels/cuda/cuda_backend.h"

namespace lockstep::kernels::cuda {
namespace {

bool is_on_by_environment() {
  const char* text = std::getenv("LOCKSTEP_FUSED_LOSS");
  const std::string_view word = text ? text : "";
  require(word.empty() || word == "on" || word == "off", ErrorCode::Usage, "LOCKSTEP_FUSED_LOSS",
          "is '{}'; use on or off", word);
  return word != "off";
}

}  // namespace

bool CudaBackend::fuses_linear_cross_entropy(DType dtype, std::size_t in,
                                             std::size_t classes) const {
  static const bool is_on = is_on_by_environment();
  const bool has_kernel = dtype == DType::float32 || dtype == DType::float64;
  return is_on && has_kernel && classes > 0 && classes <= kFusedLossClasses &&
         in <= kFusedLossBytes / size_of(dtype) / classes;
}

}  // namespace lockstep::kernels::cuda
