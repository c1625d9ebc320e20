// The words of which the checks of calls are made: each requires one thing of one view, and names
// the operation and the view where it does not hold.
#pragma once

#include "engine/core/error.h"
#include "engine/core/views.h"

namespace lockstep::kernels::checks {

inline void require_size(const char* operation, const char* name, std::size_t found,
                         std::size_t expected) {
  require(found == expected, ErrorCode::Shape, operation, "{} has size {}, expected {}", name,
          found, expected);
}

inline void require_dtype(const char* operation, const char* name, DType found, DType expected) {
  require(found == expected, ErrorCode::DType, operation, "{} is {}, expected {}", name,
          to_string(found), to_string(expected));
}

// A vector of num_elements elements of dtype.
inline void require_vector(const char* operation, const char* name, const ConstTensorView& view,
                           DType dtype, std::size_t num_elements) {
  require_dtype(operation, name, view.dtype, dtype);
  require_size(operation, name, view.num_elements, num_elements);
}

// As large as another, and of its dtype.
inline void require_like(const char* operation, const char* name, const ConstTensorView& view,
                         const ConstTensorView& other) {
  require_vector(operation, name, view, other.dtype, other.num_elements);
}

// As require_vector, or no data at all.
inline void require_optional_vector(const char* operation, const char* name,
                                    const ConstTensorView& view, DType dtype,
                                    std::size_t num_elements) {
  if (view.data) require_vector(operation, name, view, dtype, num_elements);
}

// One matrix of rows x cols.
inline void require_matrix(const char* operation, const char* name, const ConstMatrixView& view,
                           DType dtype, std::size_t rows, std::size_t cols) {
  require_dtype(operation, name, view.dtype, dtype);
  require(view.batch == 1 && view.rows == rows && view.cols == cols, ErrorCode::Shape, operation,
          "{} is [{}, {}, {}], expected [1, {}, {}] (batch, rows, columns)", name, view.batch,
          view.rows, view.cols, rows, cols);
}

// As require_matrix, or no data at all.
inline void require_optional_matrix(const char* operation, const char* name,
                                    const ConstMatrixView& view, DType dtype, std::size_t rows,
                                    std::size_t cols) {
  if (view.data) require_matrix(operation, name, view, dtype, rows, cols);
}

}  // namespace lockstep::kernels::checks
