#include "kernels/cuda/checks.h"

#include "engine/core/error.h"

namespace lockstep::kernels::cuda {

void fail_dtype(const char* operation, DType dtype) {
  fail(ErrorCode::DType, operation, "the CUDA backend has no kernel for {}; convert to {}",
       to_string(dtype), "float32 or float64");
}

void fail_shape(const char* operation, const char* message) {
  throw Error(ErrorCode::Shape, operation, message);
}

void fail_factor(const char* operation, DType dtype, double factor) {
  fail(ErrorCode::DType, operation, "{} can be summed with factor 1 only, found {}",
       to_string(dtype), factor);
}

void fail_probability(const char* operation, double probability) {
  fail(ErrorCode::Usage, operation, "the probability must be in [0, 1], found {}", probability);
}

void require_floating(const char* operation, DType dtype) {
  if (dtype != DType::float32 && dtype != DType::float64) fail_dtype(operation, dtype);
}

void require_size(const char* operation, const char* name, std::size_t found,
                  std::size_t expected) {
  require(found == expected, ErrorCode::Shape, operation, "{} has size {}, expected {}", name,
          found, expected);
}

void require_dtype(const char* operation, const char* name, DType found, DType expected) {
  require(found == expected, ErrorCode::DType, operation, "{} is {}, expected {}", name,
          to_string(found), to_string(expected));
}

void require_vector(const char* operation, const char* name, const ConstTensorView& view,
                    DType dtype, std::size_t num_elements) {
  require_dtype(operation, name, view.dtype, dtype);
  require_size(operation, name, view.num_elements, num_elements);
}

void require_optional_vector(const char* operation, const char* name, const ConstTensorView& view,
                             DType dtype, std::size_t num_elements) {
  if (view.data) require_vector(operation, name, view, dtype, num_elements);
}

void require_matrix(const char* operation, const char* name, const ConstMatrixView& view,
                    DType dtype, std::size_t rows, std::size_t cols) {
  require_dtype(operation, name, view.dtype, dtype);
  require(view.batch == 1 && view.rows == rows && view.cols == cols, ErrorCode::Shape, operation,
          "{} is {} matrix of [{}, {}], expected one of [{}, {}]", name, view.batch, view.rows,
          view.cols, rows, cols);
}

void require_inside(const char* operation, std::size_t num_elements, std::size_t offset,
                    std::size_t bucket_elements) {
  require(offset <= bucket_elements && num_elements <= bucket_elements - offset, ErrorCode::Shape,
          operation, "{} elements at {} do not fit into a bucket of {}", num_elements, offset,
          bucket_elements);
}

}  // namespace lockstep::kernels::cuda
