// A batch from the rows of a data set: picks rows, converts them and scales them, and picks their
// labels, in one launch. Moves every picked element once in and once out (uint8 to float32: 5
// bytes).
#include <cstdint>

#include "engine/runtime/cuda/cuda_stream.h"
#include "kernels/cuda/checks.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/fault.cuh"
#include "kernels/cuda/row_tiles.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr std::size_t kGroup = 4;  // neighbours that a lane converts together

template <typename From, typename To>
struct Gather {
  const From* source;
  std::size_t source_rows;
  std::size_t source_leading_dimension;
  const std::int64_t* indices;
  To* to;
  std::size_t rows;
  std::size_t cols;
  std::size_t leading_dimension;
  std::size_t in_groups;  // columns that are moved in groups: all but a tail, or none
  To factor;
  const std::int64_t* label_source;  // or nullptr
  std::int64_t* labels;
  DeviceFault* fault;
};

template <typename From, typename To>
__global__ void gather_kernel(Gather<From, To> call) {
  for_row_tiles(call.rows, call.cols, [&](std::size_t row, std::size_t begin, std::size_t end) {
    const std::int64_t index = call.indices[row];
    To* const to = call.to + row * call.leading_dimension;
    if (!is_within(index, call.source_rows)) {
      if (threadIdx.x % kWarp == 0) {
        report_fault(call.fault, FaultKind::row_index, index, call.source_rows);
        if (call.label_source != nullptr) call.labels[row] = 0;
      }
      for (std::size_t j = begin + threadIdx.x % kWarp; j < end; j += kWarp) to[j] = To(0);
      return;
    }
    if (call.label_source != nullptr && begin == 0 && threadIdx.x % kWarp == 0) {
      call.labels[row] = call.label_source[index];
    }
    const From* const from = call.source + index * call.source_leading_dimension;
    const auto scaled = [&](From value) { return call.factor * static_cast<To>(value); };
    const std::size_t tail = end < call.in_groups ? end : call.in_groups;
    const std::size_t rest = tail < begin ? begin : tail;
    if (begin < tail) transform_in_warp<kGroup>(from, to, begin, tail, scaled);
    transform_in_warp<1>(from, to, rest, end, scaled);
  });
}

}  // namespace

void CudaBackend::gather_rows(Stream& stream, ConstMatrixView source, ConstTensorView indices,
                              MatrixView to, double scale, const LabelsOfRows& labels) {
  const auto* name = "gather_rows";
  checks::gather_rows(source, indices, to, labels);
  if (source.dtype != DType::uint8) require_floating(name, source.dtype);
  require_floating(name, to.dtype);
  if (to.rows == 0 || to.cols == 0) return;
  const auto gather = [&]<typename From, typename To>() {
    const From* from = data_of<From>(source);
    To* into = data_of<To>(to);
    const bool in_groups = has_aligned_groups<kGroup>(from, source.leading_dimension) &&
                           has_aligned_groups<kGroup>(into, to.leading_dimension);
    launch(stream, name, row_tiles(to.rows, to.cols), gather_kernel<From, To>,
           {.source = from,
            .source_rows = source.rows,
            .source_leading_dimension = source.leading_dimension,
            .indices = data_of<std::int64_t>(indices),
            .to = into,
            .rows = to.rows,
            .cols = to.cols,
            .leading_dimension = to.leading_dimension,
            .in_groups = in_groups ? to.cols / kGroup * kGroup : 0,
            .factor = static_cast<To>(scale),
            .label_source = data_of<std::int64_t>(labels.from),
            .labels = data_of<std::int64_t>(labels.to),
            .fault = runtime::cuda::cuda_stream(stream).fault()});
  };
  for_floating(to.dtype, name, [&]<typename To>() {
    if (source.dtype == DType::uint8) return gather.template operator()<std::uint8_t, To>();
    if (source.dtype == DType::float32) return gather.template operator()<float, To>();
    gather.template operator()<double, To>();
  });
}

}  // namespace lockstep::kernels::cuda
