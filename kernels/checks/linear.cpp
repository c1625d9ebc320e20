#include "kernels/checks.h"
#include "kernels/checks/views.h"

namespace lockstep::kernels::checks {

void matmul(const ConstMatrixView& a, Transpose transpose_a, const ConstMatrixView& b,
            Transpose transpose_b, const ConstMatrixView& c) {
  const auto* name = "matmul";
  const bool a_turned = transpose_a == Transpose::yes;
  const bool b_turned = transpose_b == Transpose::yes;
  require_dtype(name, "b", b.dtype, a.dtype);
  require_dtype(name, "c", c.dtype, a.dtype);
  require_size(name, "the inner dimension of b", b_turned ? b.cols : b.rows,
               a_turned ? a.rows : a.cols);
  require_size(name, "the rows of c", c.rows, a_turned ? a.cols : a.rows);
  require_size(name, "the columns of c", c.cols, b_turned ? b.rows : b.cols);
  require((a.batch == 1 || a.batch == c.batch) && (b.batch == 1 || b.batch == c.batch),
          ErrorCode::Shape, name, "batch sizes {} and {} do not give {}", a.batch, b.batch,
          c.batch);
}

void linear_forward(const LinearForward& call) {
  const auto* name = "linear";
  const DType dtype = call.x.dtype;
  const std::size_t batch = call.x.rows;
  const std::size_t out = call.weight.rows;
  require_matrix(name, "weight", call.weight, dtype, out, call.x.cols);
  require_matrix(name, "y", call.y, dtype, batch, out);
  require_optional_vector(name, "bias", call.bias, dtype, out);
  require_optional_matrix(name, "preactivation", call.preactivation, dtype, batch, out);
}

void linear_backward(const LinearBackward& call) {
  const auto* name = "linear backward";
  const DType dtype = call.x.dtype;
  const std::size_t batch = call.x.rows;
  const std::size_t in = call.x.cols;
  const std::size_t out = call.weight.rows;
  require_matrix(name, "weight", call.weight, dtype, out, in);
  require_matrix(name, "grad_y", call.grad_y, dtype, batch, out);
  if (call.activation != Activation::none) {
    require_matrix(name, "scratch", call.scratch, dtype, batch, out);
    if (needs_preactivation(call.activation)) {
      require_matrix(name, "preactivation", call.preactivation, dtype, batch, out);
    } else {
      require_matrix(name, "y", call.y, dtype, batch, out);
    }
  }
  require_optional_matrix(name, "grad_x", call.grad_x, dtype, batch, in);
  if (call.grad_x.data && needs_preactivation(call.input_activation)) {
    require_matrix(name, "input_preactivation", call.input_preactivation, dtype, batch, in);
  }
  require_optional_matrix(name, "grad_weight", call.grad_weight, dtype, out, in);
  require_optional_vector(name, "grad_bias", call.grad_bias, dtype, out);
  if (call.input_grad_bias.data) {
    require_matrix(name, "grad_x", call.grad_x, dtype, batch, in);
    require_optional_vector(name, "input_grad_bias", call.input_grad_bias, dtype, in);
  }
}

}  // namespace lockstep::kernels::checks
