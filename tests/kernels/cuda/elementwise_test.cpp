#include "on_gpu.h"

namespace lockstep::kernels {
namespace {

template <typename T>
using GpuElementwise = TypedGpuTest<T>;
TYPED_TEST_SUITE(GpuElementwise, Floating);

// Runs function(backend, stream, a, b, y) on the GPU in T and on the CPU in double, for all sizes,
// aligned and not, and compares y.
template <typename T, typename Function>
void expect_same(const Function& function, double tolerance = kTolerance<T>) {
  for (const std::size_t size : kGpuSizes) {
    for (const std::size_t skew : {0u, 1u}) {
      SCOPED_TRACE(::testing::Message() << size << " elements, skew " << skew);
      const auto a = random_array<T>(size, 1);
      const auto b = random_array<T>(size, 2);
      auto a2 = in_double(a), b2 = in_double(b), y2 = Array<double>(size);
      function(cpu(), cpu_stream(), a2.view(), b2.view(), y2.view());
      OnGpu<T> a1(a, skew), b1(b), y1(std::vector<T>(size), skew);
      function(gpu(), gpu_stream(), a1.view(), b1.view(), y1.view());
      expect_close(y1.values(), y2.values, tolerance);
      function(gpu(), gpu_stream(), a1.view(), b1.view(), a1.view());  // in place
      expect_close(a1.values(), y2.values, tolerance);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TYPED_TEST(GpuElementwise, ArithmeticEqualsTheCpu) {
  expect_same<TypeParam>([](Backend& backend, Stream& stream, auto a, auto b, auto y) {
    backend.add(stream, a, b, y);
  });
  expect_same<TypeParam>([](Backend& backend, Stream& stream, auto a, auto b, auto y) {
    backend.multiply(stream, a, b, y);
  });
  expect_same<TypeParam>([](Backend& backend, Stream& stream, auto a, auto, auto y) {
    backend.scale(stream, a, -1.75, y);
  });
}

TYPED_TEST(GpuElementwise, AxpyAddsAMultiple) {
  for (const std::size_t size : kGpuSizes) {
    const auto x = random_array<TypeParam>(size, 1), y = random_array<TypeParam>(size, 2);
    auto x2 = in_double(x), y2 = in_double(y);
    cpu().axpy(cpu_stream(), 0.3, x2.view(), y2.view());
    OnGpu<TypeParam> x1(x), y1(y);
    gpu().axpy(gpu_stream(), 0.3, x1.view(), y1.view());
    expect_close(y1.values(), y2.values);
  }
}

constexpr Activation kActivations[] = {Activation::none,     Activation::relu,
                                       Activation::gelu_erf, Activation::gelu_tanh,
                                       Activation::tanh,     Activation::sigmoid};

TYPED_TEST(GpuElementwise, ActivationsEqualTheCpu) {
  for (const Activation activation : kActivations) {
    SCOPED_TRACE(static_cast<int>(activation));
    expect_same<TypeParam>([&](Backend& backend, Stream& stream, auto a, auto, auto y) {
      backend.activation_forward(stream, activation, a, y);
    });
    expect_same<TypeParam>([&](Backend& backend, Stream& stream, auto a, auto b, auto y) {
      backend.activation_backward(stream, activation, a, b, y);
    });
  }
}

TYPED_TEST(GpuElementwise, ActivationsTreatNaNInfinityAndZeroAsTheCpuDoes) {
  const Array<TypeParam> x(std::vector<TypeParam>{
      TypeParam(kNaN), TypeParam(kInfinity), TypeParam(-kInfinity), 0, TypeParam(-0.0), 30, -30});
  for (const Activation activation : kActivations) {
    SCOPED_TRACE(static_cast<int>(activation));
    const Array<TypeParam> grad(x.size(), 2);
    auto x2 = in_double(x), y2 = Array<double>(x.size()), grad2 = in_double(grad);
    OnGpu<TypeParam> x1(x), y1(x.size()), grad1(grad);
    cpu().activation_forward(cpu_stream(), activation, x2.view(), y2.view());
    gpu().activation_forward(gpu_stream(), activation, x1.view(), y1.view());
    expect_close(y1.values(), y2.values);
    cpu().activation_backward(cpu_stream(), activation, x2.view(), grad2.view(), y2.view());
    gpu().activation_backward(gpu_stream(), activation, x1.view(), grad1.view(), y1.view());
    expect_close(y1.values(), y2.values);
  }
}

TYPED_TEST(GpuElementwise, OrderedSumHasTheCpusBits) {
  using T = TypeParam;
  for (const std::size_t size : kGpuSizes) {
    for (const std::size_t num_sources : {1u, 2u, 3u, 8u, 9u, 20u}) {
      if (size * num_sources > 4'000'000) continue;
      SCOPED_TRACE(::testing::Message() << num_sources << " sources of " << size);
      std::vector<Array<T>> arrays;
      std::vector<std::unique_ptr<OnGpu<T>>> on_gpu;
      std::vector<ConstTensorView> cpu_views, gpu_views;
      for (std::size_t s = 0; s < num_sources; ++s) {
        arrays.push_back(random_array<T>(size, s));
        on_gpu.push_back(std::make_unique<OnGpu<T>>(arrays.back(), num_sources == 3 ? s : 0));
        gpu_views.push_back(on_gpu.back()->view());
      }
      for (auto& array : arrays) cpu_views.push_back(array.view());
      for (const double factor : {1.0, 1.0 / 3}) {
        Array<T> expected(size);
        cpu().ordered_sum(cpu_stream(), cpu_views, factor, expected.view());
        OnGpu<T> y(size);
        gpu().ordered_sum(gpu_stream(), gpu_views, factor, y.view());
        ASSERT_EQ(y.values(), expected.values);
      }
      Array<T> expected(size);
      cpu().ordered_sum(cpu_stream(), cpu_views, 0.5, expected.view());
      OnGpu<T>& last = *on_gpu.back();  // y may be a source
      gpu().ordered_sum(gpu_stream(), gpu_views, 0.5, last.view());
      ASSERT_EQ(last.values(), expected.values);
    }
  }
}

class GpuElementwiseAny : public GpuTest {};

TEST_F(GpuElementwiseAny, OrderedSumAddsIntegersWithFactorOne) {
  OnGpu<std::int64_t> a(std::vector<std::int64_t>{1, std::int64_t{1} << 60}), y(2);
  const std::vector<ConstTensorView> views{a.view(), a.view(), a.view()};
  gpu().ordered_sum(gpu_stream(), views, 1, y.view());
  EXPECT_EQ(y.values(), (std::vector<std::int64_t>{3, std::int64_t{3} << 60}));
  expect_error(ErrorCode::DType, "factor 1",
               [&] { gpu().ordered_sum(gpu_stream(), views, 0.5, y.view()); });
  OnGpu<std::int32_t> b(std::vector<std::int32_t>{-7}), z(1);
  gpu().ordered_sum(gpu_stream(), std::vector<ConstTensorView>{b.view(), b.view()}, 1, z.view());
  EXPECT_EQ(z.values(), std::vector<std::int32_t>{-14});
}

}  // namespace
}  // namespace lockstep::kernels
