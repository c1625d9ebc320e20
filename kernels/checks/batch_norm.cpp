#include "kernels/checks.h"
#include "kernels/checks/views.h"

namespace lockstep::kernels::checks {
namespace {

// What stands in both calls: a matrix of the size of x, and one number per feature.
template <typename Call>
void require_features(const char* name, const Call& call, const char* matrix_name,
                      const ConstMatrixView& matrix) {
  const DType dtype = call.x.dtype;
  require_matrix(name, matrix_name, matrix, dtype, call.x.rows, call.x.cols);
  require_vector(name, "mean", call.mean, dtype, call.x.cols);
  require_vector(name, "inverse_std", call.inverse_std, dtype, call.x.cols);
  require_optional_vector(name, "weight", call.weight, dtype, call.x.cols);
}

}  // namespace

void batch_norm_forward(const BatchNormForward& call) {
  const auto* name = "batch_norm";
  const DType dtype = call.x.dtype;
  const std::size_t features = call.x.cols;
  require_features(name, call, "y", call.y);
  require_optional_vector(name, "bias", call.bias, dtype, features);
  require_optional_vector(name, "running_mean", call.running_mean, dtype, features);
  require_optional_vector(name, "running_var", call.running_var, dtype, features);
  require(call.statistics == BatchNormForward::Statistics::batch ||
              (call.running_mean.data && call.running_var.data),
          ErrorCode::Shape, name, "evaluation needs the running mean and variance");
}

void batch_norm_backward(const BatchNormBackward& call) {
  const auto* name = "batch_norm backward";
  const DType dtype = call.x.dtype;
  const std::size_t features = call.x.cols;
  require_features(name, call, "grad_y", call.grad_y);
  require_optional_vector(name, "grad_weight", call.grad_weight, dtype, features);
  require_optional_vector(name, "grad_bias", call.grad_bias, dtype, features);
  require_optional_matrix(name, "grad_x", call.grad_x, dtype, call.x.rows, features);
}

}  // namespace lockstep::kernels::checks
