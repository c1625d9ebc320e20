#include "kernels/checks.h"
#include "kernels/checks/views.h"

namespace lockstep::kernels::checks {

void sum(const ConstTensorView& x, const ConstTensorView& y) {
  require_vector("sum", "y", y, x.dtype, 1);
}

void sum_rows(const ConstMatrixView& x, const ConstTensorView& y) {
  require_size("sum_rows", "the batch of x", x.batch, 1);
  require_vector("sum_rows", "y", y, x.dtype, x.cols);
}

void argmax_rows(const ConstMatrixView& x, const ConstTensorView& y) {
  require_vector("argmax_rows", "y", y, DType::int64, x.rows);
  require(x.cols > 0 || x.rows == 0, ErrorCode::Shape, "argmax_rows",
          "a row without columns has no largest element");
}

void norm(const ConstTensorView& y) {
  require_size("norm", "y", y.num_elements, 1);
}

}  // namespace lockstep::kernels::checks
