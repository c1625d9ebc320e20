// Copies, fills, conversions and gathers: every element is read and written once. Copies and fills
// move bits, so one kernel serves all element types of a width.
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "engine/runtime/cuda/cuda_stream.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/element_types.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/product.h"

namespace lockstep::kernels::cuda {
namespace {

template <typename To>
struct Convert {
  __device__ auto operator()(auto x) const { return static_cast<ArithmeticOf<To>>(x); }
};

template <typename Unit>
struct Fill {
  Unit value;
  __device__ Unit operator()() const { return value; }
};

// The strides of one side's batch of matrices.
struct Strides {
  std::size_t leading_dimension;
  std::size_t batch_stride;
};

template <typename From, typename To>
__global__ void copy_rows_kernel(const From* from, Strides from_strides, To* to, Strides to_strides,
                                 std::size_t batch, std::size_t rows, std::size_t cols) {
  for_matrix(batch * rows, cols, [&](std::size_t i, std::size_t j) {
    const auto at = [&](const Strides& strides) {
      return i / rows * strides.batch_stride + i % rows * strides.leading_dimension + j;
    };
    to[at(to_strides)] = element_cast<To>(from[at(from_strides)]);
  });
}

template <typename From, typename To>
void copy_rows(Stream& stream, const char* operation, const ConstMatrixView& from,
               const MatrixView& to) {
  if (from.num_elements() == 0) return;
  const auto is_whole = [](const auto& view) {
    return view.leading_dimension == view.cols &&
           (view.batch == 1 || view.batch_stride == view.rows * view.cols);
  };
  if (is_whole(from) && is_whole(to)) {
    return launch_elementwise(stream, operation, data_of<To>(to), from.num_elements(),
                              Convert<To>{}, data_of<From>(from));
  }
  launch(stream, operation, row_tiles(from.batch * from.rows, from.cols),
         copy_rows_kernel<From, To>, data_of<From>(from),
         Strides{from.leading_dimension, from.batch_stride}, data_of<To>(to),
         Strides{to.leading_dimension, to.batch_stride}, from.batch, from.rows, from.cols);
}

// The bits of a value as an element of dtype.
std::uint64_t bits_of(DType dtype, double value) {
  std::uint64_t bits = 0;
  const auto take = [&](auto element) { std::memcpy(&bits, &element, sizeof(element)); };
  for_any(dtype, [&]<typename T>() { take(element_cast<T>(value)); });
  return bits;
}

template <typename Function>
void for_floats(DType dtype, const Function& function) {
  if (dtype == DType::bfloat16) return function.template operator()<Bfloat16>();
  function.template operator()<float>();
}

// Bytes are scaled in float64, so that a pixel / 255 is the nearest float32, as a division gives
// it.
template <typename From, typename To>
using GatherFactor = std::conditional_t<std::is_same_v<From, std::uint8_t>, double, To>;

// A row outside the source is read as zeros.
template <typename From, typename To>
__global__ void gather_kernel(Rows<const From> source, std::size_t source_rows,
                              const std::int64_t* indices, Rows<To> to, std::size_t rows,
                              std::size_t cols, GatherFactor<From, To> factor, DeviceFault* fault) {
  for_matrix(rows, cols, [&](std::size_t row, std::size_t j) {
    const std::int64_t index = indices[row];
    const bool is_good = is_within(index, source_rows);
    if (!is_good && j == 0) report_fault(fault, FaultKind::row_index, index, source_rows);
    using Factor = GatherFactor<From, To>;
    to[row][j] = is_good ? static_cast<To>(factor * static_cast<Factor>(
                                                        source[static_cast<std::size_t>(index)][j]))
                         : To(0);
  });
}

}  // namespace

void CudaBackend::copy(Stream& stream, const Copy& call) {
  require_as_large("copy", call.from, {"to", call.to});
  if (call.from.dtype != call.to.dtype) {
    return for_any(call.from.dtype, [&]<typename From>() {
      for_any(call.to.dtype, [&]<typename To>() {
        launch_elementwise(stream, "copy", data_of<To>(call.to), call.to.num_elements,
                           Convert<To>{}, data_of<From>(call.from));
      });
    });
  }
  for_width(call.from.dtype, [&]<typename Unit>() {
    launch_elementwise(stream, "copy", data_of<Unit>(call.to), call.to.num_elements,
                       Convert<Unit>{}, data_of<Unit>(call.from));
  });
}

void CudaBackend::copy_matrix(Stream& stream, const CopyMatrix& call) {
  for_width(call.from.dtype, [&]<typename Unit>() {
    copy_rows<Unit, Unit>(stream, "copy_matrix", call.from, call.to);
  });
}

void convert_matrix(Stream& stream, ConstMatrixView from, MatrixView to) {
  for_floats(from.dtype, [&]<typename From>() {
    for_floats(to.dtype, [&]<typename To>() { copy_rows<From, To>(stream, "matmul", from, to); });
  });
}

void CudaBackend::fill(Stream& stream, const kernels::Fill& call) {
  const std::uint64_t bits = bits_of(call.to.dtype, call.value);
  for_width(call.to.dtype, [&]<typename Unit>() {
    launch_elementwise(stream, "fill", data_of<Unit>(call.to), call.to.num_elements,
                       Fill<Unit>{static_cast<Unit>(bits)});
  });
}

void CudaBackend::gather_rows(Stream& stream, const GatherRows& call) {
  const auto* name = "gather_rows";
  if (call.source.dtype != DType::uint8) require_floating(name, call.source.dtype);
  require_floating(name, call.to.dtype);
  if (call.to.rows == 0 || call.to.cols == 0) return;
  const auto gather = [&]<typename From, typename To>() {
    launch(stream, name, row_tiles(call.to.rows, call.to.cols), gather_kernel<From, To>,
           rows_of<From>(call.source), call.source.rows, data_of<std::int64_t>(call.indices),
           rows_of<To>(call.to), call.to.rows, call.to.cols,
           static_cast<GatherFactor<From, To>>(call.scale),
           runtime::cuda::cuda_stream(stream).fault());
  };
  for_floating(call.to.dtype, name, [&]<typename To>() {
    if (call.source.dtype == DType::uint8) return gather.template operator()<std::uint8_t, To>();
    if (call.source.dtype == DType::float32) return gather.template operator()<float, To>();
    gather.template operator()<double, To>();
  });
}

}  // namespace lockstep::kernels::cuda
