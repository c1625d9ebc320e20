#include "on_gpu.h"
#include "tests/kernels/windows_cases.h"

namespace lockstep::kernels {
namespace {

template <typename T>
using GpuPool = TypedGpuTest<T>;
TYPED_TEST_SUITE(GpuPool, Floating);

TYPED_TEST(GpuPool, ForwardAndBackwardEqualTheCpu) {
  using T = TypeParam;
  for (const Pooling pooling : {Pooling::maximum, Pooling::average}) {
    for (const Windows& w : kWindows) {
      if (w.padding > std::min(w.kernel_height, w.kernel_width) / 2) continue;
      const auto x = random_array<T>(w.images * w.image_elements(), 1);
      const auto grad_y = random_array<T>(w.rows() * w.channels, 2);
      auto x_in_double = in_double(x), grad_in_double = in_double(grad_y);
      Array<double> y(grad_y.values.size()), grad_x(x.values.size());
      Array<std::int32_t> winners(y.size());
      cpu().pool_forward(cpu_stream(), w, pooling, x_in_double.view(), y.view(), winners.view());
      cpu().pool_backward(cpu_stream(), w, pooling, winners.view(), grad_in_double.view(),
                          grad_x.view());

      OnGpu<T> gpu_x(x), gpu_grad_y(grad_y), gpu_y(y.size()), gpu_grad_x(grad_x.size());
      OnGpu<std::int32_t> gpu_winners(y.size());
      gpu().pool_forward(gpu_stream(), w, pooling, gpu_x.view(), gpu_y.view(), gpu_winners.view());
      gpu().pool_backward(gpu_stream(), w, pooling, gpu_winners.view(), gpu_grad_y.view(),
                          gpu_grad_x.view());
      if (pooling == Pooling::maximum) {
        EXPECT_EQ(gpu_winners.values(), winners.values);
      }
      expect_close(gpu_y.as_double(), y.values, 4 * kTolerance<T>);
      expect_close(gpu_grad_x.as_double(), grad_x.values, 4 * kTolerance<T>, 4);
    }
  }
}

TYPED_TEST(GpuPool, TransposeEqualsTheCpu) {
  using T = TypeParam;
  const std::size_t batch = 5, rows = 33, cols = 7;
  auto x = random_array<T>(batch * rows * cols, 1);
  Array<T> y(x.size());
  const auto matrix = [&](const TensorView& view) {
    return ConstMatrixView{view.data, view.dtype, rows, cols, cols, batch, rows * cols};
  };
  cpu().transpose(cpu_stream(), matrix(x.view()), y.view());
  OnGpu<T> gpu_x(x), gpu_y(x.size());
  gpu().transpose(gpu_stream(), matrix(gpu_x.view()), gpu_y.view());
  EXPECT_EQ(gpu_y.values(), y.values);
}

}  // namespace
}  // namespace lockstep::kernels
