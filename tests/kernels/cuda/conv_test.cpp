#include "on_gpu.h"
#include "tests/kernels/windows_cases.h"

namespace lockstep::kernels {
namespace {

template <typename T>
using GpuConv = TypedGpuTest<T>;
TYPED_TEST_SUITE(GpuConv, Floating);

constexpr std::size_t kOut = 7;

template <typename T>
Array<T> images(const Windows& w, std::uint64_t seed) {
  return random_array<T>(w.images * w.image_elements(), seed);
}

TYPED_TEST(GpuConv, PatchesAndTheirTransposeEqualTheCpu) {
  using T = TypeParam;
  for (const Windows& w : kWindows) {
    auto x = in_double(images<T>(w, 1));
    auto grad = random_grid<T>(w.rows(), w.cols(), 2, 2);
    auto grad_in_double = in_double(grad);
    Grid<double> patches(w.rows(), w.cols());
    Array<double> folded(x.size());
    cpu().patches(cpu_stream(), w, x.view(), patches.view());
    cpu().fold_patches(cpu_stream(), w, grad_in_double.view(), folded.view());

    OnGpu<T> gpu_x(images<T>(w, 1)), gpu_folded(x.size());
    GridOnGpu<T> gpu_patches(Grid<T>(w.rows(), w.cols(), 3)), gpu_grad(grad);
    gpu().patches(gpu_stream(), w, gpu_x.view(), gpu_patches.view());
    gpu().fold_patches(gpu_stream(), w, gpu_grad.view(), gpu_folded.view());
    expect_close(in_double(gpu_patches.grid()).content(), patches.content(), 0);
    EXPECT_TRUE(gpu_patches.grid().margin_is_untouched());
    expect_close(gpu_folded.as_double(), folded.values, kTolerance<T>, 10);
  }
}

template <typename T>
void expect_same_convolution(const Windows& w, double tolerance) {
  auto x = in_double(images<T>(w, 1));
  auto weight = in_double(random_grid<T>(kOut, w.cols(), 0, 2));
  auto bias = in_double(random_array<T>(kOut, 3));
  auto grad_z = in_double(random_grid<T>(w.rows(), kOut, 0, 4));
  Grid<double> y(w.rows(), kOut), grad_weight(kOut, w.cols());
  Array<double> grad_x(x.size()), grad_bias(kOut);
  cpu().conv_forward(cpu_stream(),
                     {w, x.view(), weight.view(), bias.view(), Activation::relu, y.view(), {}, {}});
  cpu().conv_backward(cpu_stream(), {w,
                                     x.view(),
                                     weight.view(),
                                     grad_z.view(),
                                     grad_x.view(),
                                     grad_weight.view(),
                                     grad_bias.view(),
                                     {}});

  OnGpu<T> gpu_x(images<T>(w, 1)), gpu_bias(random_array<T>(kOut, 3)), gpu_grad_x(x.size());
  GridOnGpu<T> gpu_weight(random_grid<T>(kOut, w.cols(), 0, 2));
  GridOnGpu<T> gpu_grad_z(random_grid<T>(w.rows(), kOut, 0, 4));
  GridOnGpu<T> gpu_y(Grid<T>(w.rows(), kOut)), gpu_grad_weight(Grid<T>(kOut, w.cols()));
  OnGpu<T> gpu_grad_bias(kOut), scratch(gpu().conv_scratch(w));
  gpu().conv_forward(gpu_stream(), {w,
                                    gpu_x.view(),
                                    gpu_weight.view(),
                                    gpu_bias.view(),
                                    Activation::relu,
                                    gpu_y.view(),
                                    {},
                                    scratch.view()});
  gpu().conv_backward(gpu_stream(),
                      {w, gpu_x.view(), gpu_weight.view(), gpu_grad_z.view(), gpu_grad_x.view(),
                       gpu_grad_weight.view(), gpu_grad_bias.view(), scratch.view()});
  expect_close(in_double(gpu_y.grid()).content(), y.content(), tolerance, 10);
  expect_close(gpu_grad_x.as_double(), grad_x.values, tolerance, 10);
  const double sum = 1 + std::sqrt(double(w.rows()));
  expect_close(in_double(gpu_grad_weight.grid()).content(), grad_weight.content(), tolerance,
               10 * sum);
  expect_close(gpu_grad_bias.as_double(), grad_bias.values, tolerance, 10 * sum);
}

TYPED_TEST(GpuConv, ForwardAndBackwardEqualTheCpu) {
  for (const Windows& w : kWindows) {
    expect_same_convolution<TypeParam>(w, 10 * kTolerance<TypeParam>);
  }
}

using GpuConvSlices = GpuTest;

TEST_F(GpuConvSlices, GiveWhatTheWholeBatchGives) {
  const Windows w{21, 64, 64, 23, 3, 3, 1, 1};
  ASSERT_LT(gpu().conv_scratch(w), w.rows() * w.cols());
  expect_same_convolution<float>(w, 40 * kTolerance<float>);
}

}  // namespace
}  // namespace lockstep::kernels
