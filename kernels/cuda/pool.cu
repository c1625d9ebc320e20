// Pooling and transposition. Gradients of poolings are gathered: every thread has its own pixels,
// and adds the windows that contain one in their order.
#include <cstdint>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/element_types.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/geometry.cuh"
#include "kernels/image_calls.h"

namespace lockstep::kernels::cuda {
namespace {

// Pixel `pixel` of an image, and the element of all results or images that belongs to a thread.
struct Place {
  std::size_t image;
  unsigned y, x, channel;

  __device__ Place(std::size_t element, unsigned height, unsigned width, unsigned channels) {
    image = element / (std::size_t{height} * width * channels);
    const auto rest = static_cast<unsigned>(element - image * height * width * channels);
    channel = rest % channels;
    x = rest / channels % width;
    y = rest / channels / width;
  }
};

template <typename X, Pooling kPooling>
__global__ void pool_kernel(Geometry p, const X* x, std::size_t num_elements, X* y,
                            std::int32_t* winners) {
  using T = ArithmeticOf<X>;
  const std::size_t step = num_global_threads();
  for (std::size_t i = global_thread(); i < num_elements; i += step) {
    const Place out(i, p.out_height, p.out_width, p.channels);
    T result = T(0);
    std::int32_t winner = -1;
    for (unsigned place = 0; place < p.kernel_height * p.kernel_width; ++place) {
      const unsigned in_y = out.y * p.stride + place / p.kernel_width - p.padding;
      const unsigned in_x = out.x * p.stride + place % p.kernel_width - p.padding;
      if (in_y >= p.height || in_x >= p.width) continue;  // also true for those before the first
      const T value =
          number(x[((out.image * p.height + in_y) * p.width + in_x) * p.channels + out.channel]);
      if (kPooling == Pooling::average) {
        result += value;
      } else if (winner < 0 || value > result || value != value) {
        result = value;
        winner = static_cast<std::int32_t>(place);
      }
    }
    if (kPooling == Pooling::average) {
      y[i] = static_cast<X>(result * (T(1) / static_cast<T>(p.kernel_height * p.kernel_width)));
    } else {
      y[i] = static_cast<X>(result);
      winners[i] = winner;
    }
  }
}

template <typename X, Pooling kPooling>
__global__ void pool_backward_kernel(Geometry p, const std::int32_t* winners, const X* grad_y,
                                     std::size_t num_elements, X* grad_x) {
  using T = ArithmeticOf<X>;
  const T factor = T(1) / static_cast<T>(p.kernel_height * p.kernel_width);
  const std::size_t step = num_global_threads();
  for (std::size_t i = global_thread(); i < num_elements; i += step) {
    const Place in(i, p.height, p.width, p.channels);
    const unsigned y = in.y + p.padding;
    const unsigned x = in.x + p.padding;
    T sum = T(0);
    for (unsigned oy = y < p.kernel_height ? 0 : (y - p.kernel_height) / p.stride + 1;
         oy < p.out_height && oy * p.stride <= y; ++oy) {
      for (unsigned ox = x < p.kernel_width ? 0 : (x - p.kernel_width) / p.stride + 1;
           ox < p.out_width && ox * p.stride <= x; ++ox) {
        const std::size_t out =
            ((in.image * p.out_height + oy) * p.out_width + ox) * p.channels + in.channel;
        if (kPooling == Pooling::average) {
          sum += factor * number(grad_y[out]);
        } else {
          const unsigned place = (y - oy * p.stride) * p.kernel_width + (x - ox * p.stride);
          if (winners[out] == static_cast<std::int32_t>(place)) sum += number(grad_y[out]);
        }
      }
    }
    grad_x[i] = static_cast<X>(sum);
  }
}

template <typename T>
__global__ void transpose_kernel(std::size_t rows, std::size_t cols, std::size_t leading_dimension,
                                 std::size_t batch_stride, std::size_t num_elements, const T* x,
                                 T* y) {
  const std::size_t step = num_global_threads();
  for (std::size_t i = global_thread(); i < num_elements; i += step) {
    const std::size_t batch = i / (rows * cols);
    const auto rest = static_cast<unsigned>(i - batch * rows * cols);
    const unsigned column = rest / static_cast<unsigned>(rows);
    const unsigned row = rest % static_cast<unsigned>(rows);
    y[i] = x[batch * batch_stride + row * leading_dimension + column];
  }
}

}  // namespace

void CudaBackend::pool_forward(Stream& stream, const PoolForward& call) {
  if (call.y.num_elements == 0) return;
  for_activations(call.x.dtype, "pool", [&]<typename X>() {
    const auto kernel = call.pooling == Pooling::average ? pool_kernel<X, Pooling::average>
                                                         : pool_kernel<X, Pooling::maximum>;
    launch(stream, "pool", covering(call.y.num_elements, kThreads), kernel, Geometry(call.windows),
           data_of<X>(call.x), call.y.num_elements, data_of<X>(call.y),
           data_of<std::int32_t>(call.winners));
  });
}

void CudaBackend::pool_backward(Stream& stream, const PoolBackward& call) {
  if (call.grad_x.num_elements == 0) return;
  for_activations(call.grad_x.dtype, "pool backward", [&]<typename X>() {
    const auto kernel = call.pooling == Pooling::average
                            ? pool_backward_kernel<X, Pooling::average>
                            : pool_backward_kernel<X, Pooling::maximum>;
    launch(stream, "pool backward", covering(call.grad_x.num_elements, kThreads), kernel,
           Geometry(call.windows), data_of<std::int32_t>(call.winners), data_of<X>(call.grad_y),
           call.grad_x.num_elements, data_of<X>(call.grad_x));
  });
}

void CudaBackend::transpose(Stream& stream, const TransposeMatrices& call) {
  if (call.y.num_elements == 0) return;
  for_width(call.x.dtype, [&]<typename T>() {
    launch(stream, "transpose", covering(call.y.num_elements, kThreads), transpose_kernel<T>,
           call.x.rows, call.x.cols, call.x.leading_dimension, call.x.batch_stride,
           call.y.num_elements, data_of<T>(call.x), data_of<T>(call.y));
  });
}

}  // namespace lockstep::kernels::cuda
