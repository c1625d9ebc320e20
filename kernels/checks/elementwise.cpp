#include "kernels/checks.h"
#include "kernels/checks/views.h"

namespace lockstep::kernels::checks {

void add(const ConstTensorView& a, const ConstTensorView& b, const ConstTensorView& y) {
  require_like("add", "b", b, a);
  require_like("add", "y", y, a);
}

void multiply(const ConstTensorView& a, const ConstTensorView& b, const ConstTensorView& y) {
  require_like("multiply", "b", b, a);
  require_like("multiply", "y", y, a);
}

void scale(const ConstTensorView& x, const ConstTensorView& y) {
  require_like("scale", "y", y, x);
}

void axpy(const ConstTensorView& x, const ConstTensorView& y) {
  require_like("axpy", "y", y, x);
}

void ordered_sum(std::span<const ConstTensorView> sources, double factor,
                 const ConstTensorView& y) {
  require(!sources.empty(), ErrorCode::Shape, "ordered_sum", "needs at least one source");
  for (const ConstTensorView& source : sources) require_like("ordered_sum", "a source", source, y);
  require(is_floating_point(y.dtype) || factor == 1, ErrorCode::DType, "ordered_sum",
          "{} can be summed with factor 1 only, found {}", to_string(y.dtype), factor);
}

void activation_forward(const ConstTensorView& x, const ConstTensorView& y) {
  require_like("activation", "y", y, x);
}

void activation_backward(const ConstTensorView& saved, const ConstTensorView& grad_y,
                         const ConstTensorView& grad_x) {
  require_like("activation backward", "grad_y", grad_y, saved);
  require_like("activation backward", "grad_x", grad_x, saved);
}

void dropout(const DropoutMask& mask, const ConstMatrixView& x, const ConstMatrixView& y) {
  require_matrix("dropout", "y", y, x.dtype, x.rows, x.cols);
  require(mask.probability >= 0 && mask.probability <= 1, ErrorCode::Usage, "dropout",
          "the probability must be in [0, 1], found {}", mask.probability);
  if (mask.step_on_device.data != nullptr) {
    require_vector("dropout", "step_on_device", mask.step_on_device, DType::int64, 1);
  }
  // A draw is numbered by 32 bits and serves four columns.
  require(x.cols <= std::size_t{1} << 34, ErrorCode::Shape, "dropout",
          "takes up to 2^34 columns, found {}", x.cols);
}

}  // namespace lockstep::kernels::checks
