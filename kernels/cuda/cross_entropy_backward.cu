// The gradient of the cross-entropy with respect to the logits: moves the probabilities in and the
// gradient out once, in one launch.
#include <cstdint>

#include "engine/runtime/cuda/cuda_stream.h"
#include "kernels/cuda/checks.h"
#include "kernels/cuda/cross_entropy.cuh"
#include "kernels/cuda/cuda_backend.h"

namespace lockstep::kernels::cuda {
namespace {

template <typename T>
struct Gradient {
  const T* probabilities;
  std::size_t leading_dimension;
  const std::int64_t* labels;
  const T* grad_loss;
  double divisor;  // rows for the mean, else 1
  T* grad_logits;
  std::size_t grad_leading_dimension;
  std::size_t rows;
  std::size_t classes;
  DeviceFault* fault;
};

template <typename T, unsigned kLanes>
__global__ void backward_kernel(Gradient<T> call) {
  constexpr int kItems = 4;  // loads under way at a time
  const T factor = static_cast<T>(*call.grad_loss / call.divisor);
  for_row_groups<kLanes>(call.rows, [&](std::size_t row, unsigned lane, bool exists) {
    if (!exists) return;
    const std::int64_t label = call.labels[row];
    const RowGradient<T> gradient{factor, label, is_within(label, call.classes)};
    if (!gradient.is_good && lane == 0) {
      report_fault(call.fault, FaultKind::label, label, call.classes);
    }
    const T* const p = call.probabilities + row * call.leading_dimension;
    T* const grad = call.grad_logits + row * call.grad_leading_dimension;
    for (std::size_t first = lane; first < call.classes; first += kItems * kLanes) {
      T values[kItems];
#pragma unroll
      for (int k = 0; k < kItems; ++k) {
        const std::size_t j = first + k * kLanes;
        if (j < call.classes) values[k] = p[j];
      }
#pragma unroll
      for (int k = 0; k < kItems; ++k) {
        const std::size_t j = first + k * kLanes;
        if (j < call.classes) grad[j] = gradient(j, values[k]);
      }
    }
  });
}

}  // namespace

void CudaBackend::softmax_cross_entropy_backward(Stream& stream, ConstMatrixView probabilities,
                                                 ConstTensorView labels, Reduction reduction,
                                                 ConstTensorView grad_loss,
                                                 MatrixView grad_logits) {
  const auto* name = "cross_entropy backward";
  const std::size_t rows = probabilities.rows;
  const std::size_t classes = probabilities.cols;
  checks::softmax_cross_entropy_backward(probabilities, labels, grad_loss, grad_logits);
  if (rows == 0) return;
  for_floating(probabilities.dtype, name, [&]<typename T>() {
    const Gradient<T> call{
        .probabilities = data_of<T>(probabilities),
        .leading_dimension = probabilities.leading_dimension,
        .labels = data_of<std::int64_t>(labels),
        .grad_loss = data_of<T>(grad_loss),
        .divisor = reduction == Reduction::mean ? static_cast<double>(rows) : 1.0,
        .grad_logits = data_of<T>(grad_logits),
        .grad_leading_dimension = grad_logits.leading_dimension,
        .rows = rows,
        .classes = classes,
        .fault = runtime::cuda::cuda_stream(stream).fault()};
    if (classes <= 16) {
      launch(stream, name, row_groups<4>(rows), backward_kernel<T, 4>, call);
    } else {
      launch(stream, name, row_groups<kWarp>(rows), backward_kernel<T, kWarp>, call);
    }
  });
}

}  // namespace lockstep::kernels::cuda
