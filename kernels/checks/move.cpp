#include "kernels/checks.h"
#include "kernels/checks/views.h"

namespace lockstep::kernels::checks {

void copy(const ConstTensorView& from, const ConstTensorView& to) {
  require_like("copy", "to", to, from);
}

void copy_matrix(const ConstMatrixView& from, const ConstMatrixView& to) {
  require_dtype("copy_matrix", "to", to.dtype, from.dtype);
  require(from.batch == to.batch && from.rows == to.rows && from.cols == to.cols, ErrorCode::Shape,
          "copy_matrix", "cannot copy [{}, {}, {}] to [{}, {}, {}]", from.batch, from.rows,
          from.cols, to.batch, to.rows, to.cols);
}

void convert(const ConstTensorView& from, const ConstTensorView& to) {
  require_size("convert", "to", to.num_elements, from.num_elements);
}

void gather_rows(const ConstMatrixView& source, const ConstTensorView& indices,
                 const ConstMatrixView& to, const LabelsOfRows& labels) {
  require_vector("gather_rows", "indices", indices, DType::int64, to.rows);
  require_size("gather_rows", "a row of the source", source.cols, to.cols);
  if (labels.from.data == nullptr) return;
  require(to.cols > 0, ErrorCode::Shape, "gather_rows", "labels need rows that have columns");
  require_vector("gather_rows", "the source's labels", labels.from, DType::int64, source.rows);
  require_vector("gather_rows", "labels", labels.to, DType::int64, to.rows);
}

}  // namespace lockstep::kernels::checks
