// The linear layer on the GPU against the CPU's in double.
#include "gpu_products.h"
#include "kernels/matmul_precision.h"
#include "tests/kernels/activation_reference.h"

namespace lockstep::kernels {
namespace {

// Untuned, so that results do not depend on the clock.
template <typename T>
class CudaLinear : public GpuTest {
  UntunedScope untuned_;
};
TYPED_TEST_SUITE(CudaLinear, Floating);

struct Sizes {
  std::size_t batch, in, out;
};
constexpr Sizes kLayers[] = {{0, 3, 4},  {1, 1, 1},   {3, 7, 31},   {31, 33, 7},
                             {65, 5, 1}, {1, 64, 32}, {40, 24, 16}, {3, 0, 5}};

template <typename T>
Grid<T> small_random_grid(std::size_t rows, std::size_t cols, std::size_t margin,
                          std::uint64_t seed) {
  auto grid = random_grid<T>(rows, cols, margin, seed);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < cols; ++j) grid(i, j) *= T(0.3);
  }
  return grid;
}

template <typename T>
void expect_forward(const Sizes& s, Activation activation, bool has_bias, std::size_t margin,
                    double tolerance = kRelativeError<T>) {
  SCOPED_TRACE(::testing::Message() << s.batch << " x " << s.in << " x " << s.out << ", activation "
                                    << int(activation) << ", margin " << margin);
  const auto x = random_grid<T>(s.batch, s.in, margin, 1);
  const auto w = small_random_grid<T>(s.out, s.in, margin, 2);
  const auto bias = random_array<T>(s.out, 3);
  auto wide_x = in_double(x), wide_w = in_double(w);
  auto wide_bias = in_double(bias);
  Grid<double> expected(s.batch, s.out), before(s.batch, s.out);
  cpu().linear_forward(stream_with(1), wide_x.view(), wide_w.view(),
                       has_bias ? wide_bias.view() : TensorView{}, activation, expected.view(),
                       before.view());
  const GridOnGpu<T> on_x(x), on_w(w), y(Grid<T>(s.batch, s.out, margin)),
      again(Grid<T>(s.batch, s.out)), kept(Grid<T>(s.batch, s.out, 1));
  const OnGpu<T> on_bias(bias);
  const TensorView bias_view = has_bias ? on_bias.view() : TensorView{};
  gpu().linear_forward(gpu_stream(), on_x.view(), on_w.view(), bias_view, activation, y.view(), {});
  EXPECT_LE(relative_error(y.grid().content(), expected.values), tolerance);
  EXPECT_TRUE(y.grid().margin_is_untouched());
  gpu().linear_forward(gpu_stream(), on_x.view(), on_w.view(), bias_view, activation, again.view(),
                       kept.view());
  EXPECT_LE(relative_error(again.grid().values, expected.values), tolerance);
  EXPECT_LE(relative_error(kept.grid().content(), before.values), tolerance);
  EXPECT_TRUE(kept.grid().margin_is_untouched());
}

TYPED_TEST(CudaLinear, ForwardEqualsTheCpusForEveryActivation) {
  for (const Sizes& s : kLayers) {
    for (const Activation activation : kActivations) {
      expect_forward<TypeParam>(s, activation, true, 0);
      expect_forward<TypeParam>(s, activation, false, 3);
    }
  }
}

template <typename T>
void expect_backward(const Sizes& s, double tolerance = kRelativeError<T>) {
  SCOPED_TRACE(::testing::Message() << s.batch << " x " << s.in << " x " << s.out);
  const auto x = random_grid<T>(s.batch, s.in, 2, 1);
  const auto w = small_random_grid<T>(s.out, s.in, 1, 2);
  const auto grad_z = random_grid<T>(s.batch, s.out, 0, 3);
  auto wide_x = in_double(x), wide_w = in_double(w), wide_grad = in_double(grad_z);
  Grid<double> grad_x(s.batch, s.in), grad_w(s.out, s.in);
  Array<double> grad_b(s.out);
  cpu().linear_backward(stream_with(1), wide_x.view(), wide_w.view(), wide_grad.view(),
                        grad_x.view(), grad_w.view(), grad_b.view());
  const GridOnGpu<T> on_x(x), on_w(w), on_grad(grad_z), result_x(Grid<T>(s.batch, s.in, 3)),
      result_w(Grid<T>(s.out, s.in));
  const OnGpu<T> result_b(Array<T>(s.out, T(1.5)));
  gpu().linear_backward(gpu_stream(), on_x.view(), on_w.view(), on_grad.view(), result_x.view(),
                        result_w.view(), result_b.view());
  EXPECT_LE(relative_error(result_x.grid().content(), grad_x.values), tolerance);
  EXPECT_LE(relative_error(result_w.grid().values, grad_w.values), tolerance);
  EXPECT_LE(relative_error(result_b.values(), grad_b.values), tolerance);
  EXPECT_TRUE(result_x.grid().margin_is_untouched());
}

TYPED_TEST(CudaLinear, BackwardEqualsTheCpus) {
  for (const Sizes& s : kLayers) expect_backward<TypeParam>(s);
}

TYPED_TEST(CudaLinear, BackwardLeavesOutWhatIsNotWanted) {
  using T = TypeParam;
  const GridOnGpu<T> x(random_grid<T>(40, 12, 0, 1)), w(random_grid<T>(9, 12, 0, 2)),
      grad_z(random_grid<T>(40, 9, 0, 3)), grad_x(Grid<T>(40, 12)), grad_w(Grid<T>(9, 12)),
      only_x(Grid<T>(40, 12)), only_w(Grid<T>(9, 12));
  const OnGpu<T> grad_b(Array<T>(9)), only_b(Array<T>(9));
  const auto run = [&](MatrixView to_x, MatrixView to_w, TensorView to_b) {
    gpu().linear_backward(gpu_stream(), x.view(), w.view(), grad_z.view(), to_x, to_w, to_b);
  };
  run(grad_x.view(), grad_w.view(), grad_b.view());
  run(only_x.view(), {}, {});
  run({}, only_w.view(), {});
  run({}, {}, only_b.view());
  EXPECT_EQ(only_x.grid().values, grad_x.grid().values);
  EXPECT_EQ(only_w.grid().values, grad_w.grid().values);
  EXPECT_EQ(only_b.values(), grad_b.values());
}

class CudaTunedLinear : public GpuTest {};

TEST_F(CudaTunedLinear, IsRightWithWhateverWasFastest) {
  for (const Activation activation : {Activation::none, Activation::relu}) {
    expect_forward<float>({31, 33, 16}, activation, true, 0);
  }
  expect_backward<float>({31, 33, 16});
}

class CudaLinearPrecision : public GpuTest {
 protected:
  void TearDown() override { set_matmul_precision(MatmulPrecision::highest); }
};

TEST_F(CudaLinearPrecision, LowerPrecisionsKeepTheirPromise) {
  set_matmul_precision(MatmulPrecision::high);
  expect_forward<float>({40, 24, 128}, Activation::none, true, 0, 2e-3);
  expect_backward<float>({40, 24, 128}, 2e-3);
  set_matmul_precision(MatmulPrecision::medium);
  expect_forward<float>({40, 24, 128}, Activation::gelu_tanh, true, 0, 1e-2);
  expect_backward<float>({40, 24, 128}, 1e-2);
}

}  // namespace
}  // namespace lockstep::kernels
