// The mean squared error: forward reads x and target once, backward also writes the gradient.
#include "kernels/cuda/checks.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/reduce.cuh"

namespace lockstep::kernels::cuda {
namespace {

template <typename T>
struct SquaredDifference {
  __device__ double operator()(const T (&x)[2]) const {
    const double difference = static_cast<double>(x[0]) - static_cast<double>(x[1]);
    return difference * difference;
  }
};

template <typename T>
struct Gradient {
  const T* grad_loss;
  double divisor;
  T factor;  // 2 * grad_loss[0] / divisor

  __device__ void load() { factor = static_cast<T>(2 * *grad_loss / divisor); }
  __device__ T operator()(const T (&x)[2]) const { return factor * (x[0] - x[1]); }
};

// What the sum is divided by: the elements for the mean.
double divisor(Reduction reduction, std::size_t num_elements) {
  return reduction == Reduction::mean ? static_cast<double>(num_elements) : 1.0;
}

}  // namespace

void CudaBackend::mse_forward(Stream& stream, ConstTensorView x, ConstTensorView target,
                              Reduction reduction, TensorView loss) {
  checks::mse_forward(x, target, loss);
  for_floating(x.dtype, "mse", [&]<typename T>() {
    launch_reduce(stream, "mse", Inputs<T, 2>{{data_of<T>(x), data_of<T>(target)}}, x.num_elements,
                  SquaredDifference<T>{}, data_of<T>(loss), divisor(reduction, x.num_elements));
  });
}

void CudaBackend::mse_backward(Stream& stream, ConstTensorView x, ConstTensorView target,
                               Reduction reduction, ConstTensorView grad_loss, TensorView grad_x) {
  const auto* name = "mse backward";
  checks::mse_backward(x, target, grad_loss, grad_x);
  for_floating(x.dtype, name, [&]<typename T>() {
    launch_elementwise(
        stream, name, Inputs<T, 2>{{data_of<T>(x), data_of<T>(target)}}, data_of<T>(grad_x),
        grad_x.num_elements,
        Gradient<T>{data_of<T>(grad_loss), divisor(reduction, x.num_elements), T(0)});
  });
}

}  // namespace lockstep::kernels::cuda
