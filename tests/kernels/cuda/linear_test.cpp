// The linear layer on the GPU, through every epilogue, against the CPU's in double.
#include "gpu_products.h"
#include "kernels/matmul_precision.h"
#include "kernels/matmul_tuning.h"
#include "tests/kernels/activation_reference.h"

namespace lockstep::kernels {
namespace {

// Untuned, so that an epilogue is used wherever there is one, whatever the clock says.
template <typename T>
class CudaLinear : public GpuTest {
  UntunedScope untuned_;
};
TYPED_TEST_SUITE(CudaLinear, Floating);

struct Sizes {
  std::size_t batch, in, out;
};
constexpr Sizes kLayers[] = {{0, 3, 4},  {1, 1, 1},   {3, 7, 31},  {31, 33, 7},
                             {65, 5, 1}, {1, 64, 32}, {40, 24, 16}};

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
void expect_forward(const Sizes& s, Activation activation, bool has_bias, std::size_t margin) {
  SCOPED_TRACE(::testing::Message() << s.batch << " x " << s.in << " x " << s.out << ", activation "
                                    << int(activation) << ", margin " << margin);
  const auto x = random_grid<T>(s.batch, s.in, margin, 1);
  const auto w = small_random_grid<T>(s.out, s.in, margin, 2);
  const auto bias = random_array<T>(s.out, 3);
  auto wide_x = in_double(x), wide_w = in_double(w);
  auto wide_bias = in_double(bias);
  Grid<double> expected(s.batch, s.out), before(s.batch, s.out);
  LinearForward wide{wide_x.view(), wide_w.view(), {}, expected.view(), activation, before.view()};
  if (has_bias) wide.bias = wide_bias.view();
  cpu().linear_forward(stream_with(1), wide);
  const GridOnGpu<T> on_x(x), on_w(w), y(Grid<T>(s.batch, s.out, margin));
  const OnGpu<T> on_bias(bias);
  LinearForward call{on_x.view(), on_w.view(), {}, y.view(), activation, {}};
  if (has_bias) call.bias = on_bias.view();
  gpu().linear_forward(gpu_stream(), call);
  EXPECT_LE(relative_error(y.grid().content(), expected.values), kRelativeError<T>);
  EXPECT_TRUE(y.grid().margin_is_untouched());
  // Rows of what is kept begin where cuBLASLt wants them, and where it does not.
  for (const std::size_t kept_margin : {(8 - s.out % 8) % 8, s.out % 8 == 0 ? 1ul : 0ul}) {
    const GridOnGpu<T> again(Grid<T>(s.batch, s.out)), kept(Grid<T>(s.batch, s.out, kept_margin));
    call.y = again.view();
    call.preactivation = kept.view();
    gpu().linear_forward(gpu_stream(), call);
    EXPECT_LE(relative_error(again.grid().values, expected.values), kRelativeError<T>);
    EXPECT_LE(relative_error(kept.grid().content(), before.values), kRelativeError<T>);
  }
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
void expect_backward(const Sizes& s, Activation activation, Write write) {
  SCOPED_TRACE(::testing::Message() << s.batch << " x " << s.in << " x " << s.out << ", activation "
                                    << int(activation) << ", write " << int(write));
  const auto x = random_grid<T>(s.batch, s.in, 2, 1);
  const auto w = small_random_grid<T>(s.out, s.in, 1, 2);
  const auto grad_y = random_grid<T>(s.batch, s.out, 0, 3);
  auto wide_x = in_double(x), wide_w = in_double(w), wide_grad = in_double(grad_y);
  Grid<double> y(s.batch, s.out), before(s.batch, s.out), scratch(s.batch, s.out),
      grad_x(s.batch, s.in), grad_w(s.out, s.in);
  Array<double> grad_b(s.out, 1.5);
  std::fill(grad_w.values.begin(), grad_w.values.end(), 1.5);
  cpu().linear_forward(stream_with(1),
                       {wide_x.view(), wide_w.view(), {}, y.view(), activation, before.view()});
  cpu().linear_backward(stream_with(1), {wide_x.view(), wide_w.view(), y.view(), before.view(),
                                         wide_grad.view(), activation, scratch.view(),
                                         grad_x.view(), grad_w.view(), grad_b.view(), write});
  const GridOnGpu<T> on_x(x), on_w(w), on_grad(grad_y), on_y(Grid<T>(s.batch, s.out, 1)),
      kept(Grid<T>(s.batch, s.out)), on_scratch(Grid<T>(s.batch, s.out)),
      result_x(Grid<T>(s.batch, s.in, 3));
  Grid<T> start(s.out, s.in, 0);
  std::fill(start.values.begin(), start.values.end(), T(1.5));
  const GridOnGpu<T> result_w(start);
  const OnGpu<T> result_b(Array<T>(s.out, T(1.5)));
  auto& stream = gpu_stream();
  gpu().linear_forward(stream,
                       {on_x.view(), on_w.view(), {}, on_y.view(), activation, kept.view()});
  gpu().linear_backward(
      stream, {on_x.view(), on_w.view(), on_y.view(), kept.view(), on_grad.view(), activation,
               on_scratch.view(), result_x.view(), result_w.view(), result_b.view(), write});
  EXPECT_LE(relative_error(result_x.grid().content(), grad_x.values), kRelativeError<T>);
  EXPECT_LE(relative_error(result_w.grid().values, grad_w.values), kRelativeError<T>);
  EXPECT_LE(relative_error(result_b.values(), grad_b.values), kRelativeError<T>);
  EXPECT_TRUE(result_x.grid().margin_is_untouched());
}

TYPED_TEST(CudaLinear, BackwardEqualsTheCpusForEveryActivation) {
  for (const Sizes& s : kLayers) {
    for (const Activation activation : kActivations) {
      expect_backward<TypeParam>(s, activation, Write::overwrite);
    }
  }
}

TYPED_TEST(CudaLinear, BackwardAddsToTheGradientsOfTheParametersWhenAsked) {
  for (const Sizes& s : kLayers) {
    expect_backward<TypeParam>(s, Activation::relu, Write::accumulate);
    expect_backward<TypeParam>(s, Activation::none, Write::accumulate);
  }
}

TYPED_TEST(CudaLinear, BackwardLeavesOutWhatIsNotWanted) {
  using T = TypeParam;
  const GridOnGpu<T> x(random_grid<T>(40, 12, 0, 1)), w(random_grid<T>(9, 12, 0, 2)),
      grad_y(random_grid<T>(40, 9, 0, 3)), grad_x(Grid<T>(40, 12)), grad_w(Grid<T>(9, 12)),
      only_x(Grid<T>(40, 12)), only_w(Grid<T>(9, 12));
  const OnGpu<T> grad_b(Array<T>(9)), only_b(Array<T>(9));
  const auto run = [&](MatrixView to_x, MatrixView to_w, TensorView to_b) {
    LinearBackward call;
    call.x = x.view();
    call.weight = w.view();
    call.grad_y = grad_y.view();
    call.grad_x = to_x;
    call.grad_weight = to_w;
    call.grad_bias = to_b;
    gpu().linear_backward(gpu_stream(), call);
  };
  const auto as_double = [](const std::vector<T>& values) {
    return std::vector<double>(values.begin(), values.end());
  };
  run(grad_x.view(), grad_w.view(), grad_b.view());
  run(only_x.view(), {}, {});
  run({}, only_w.view(), {});
  run({}, {}, only_b.view());
  EXPECT_EQ(only_x.grid().values, grad_x.grid().values);
  EXPECT_LE(relative_error(only_w.grid().values, as_double(grad_w.grid().values)),
            kRelativeError<T>);
  EXPECT_LE(relative_error(only_b.values(), as_double(grad_b.values())), kRelativeError<T>);
}

// Two layers with an activation between them, as a stack runs them: the second one's backward
// takes the activation's gradient. Against the same on the CPU in double.
template <typename T>
void expect_stack(const Sizes& s, Activation activation, double tolerance) {
  SCOPED_TRACE(::testing::Message()
               << s.batch << " x " << s.in << " x " << s.out << ", activation " << int(activation));
  constexpr std::size_t kClasses = 5;
  const auto x = random_grid<T>(s.batch, s.in, 0, 1);
  const auto w = random_grid<T>(s.out, s.in, 0, 2), w2 = random_grid<T>(kClasses, s.out, 0, 4);
  const auto bias = random_array<T>(s.out, 3);
  const auto grad = random_grid<T>(s.batch, kClasses, 0, 5);
  auto wide_x = in_double(x), wide_w = in_double(w), wide_w2 = in_double(w2),
       wide_grad = in_double(grad);
  auto wide_bias = in_double(bias);
  Grid<double> h(s.batch, s.out), before(s.batch, s.out), grad_h(s.batch, s.out);
  cpu().linear_forward(stream_with(1), {wide_x.view(), wide_w.view(), wide_bias.view(), h.view(),
                                        activation, before.view()});
  LinearBackward wide;
  wide.x = h.view();
  wide.weight = wide_w2.view();
  wide.grad_y = wide_grad.view();
  wide.grad_x = grad_h.view();
  wide.input_activation = activation;
  wide.input_preactivation = before.view();
  Array<double> grad_bias(s.out, 1.5);
  wide.input_grad_bias = grad_bias.view();
  cpu().linear_backward(stream_with(1), wide);

  auto& stream = gpu_stream();
  const GridOnGpu<T> on_x(x), on_w(w), on_w2(w2), on_grad(grad), on_h(Grid<T>(s.batch, s.out)),
      kept(Grid<T>(s.batch, s.out, (8 - s.out % 8) % 8)), result(Grid<T>(s.batch, s.out, 1));
  const OnGpu<T> on_bias(bias);
  LinearForward forward{on_x.view(), on_w.view(), on_bias.view(), on_h.view(), activation, {}};
  if (needs_preactivation(activation)) forward.preactivation = kept.view();
  const std::size_t num_bytes = gpu().linear_mask_bytes(stream, forward);
  const OnGpu<std::uint8_t> mask(Array<std::uint8_t>(num_bytes, 0xff));
  LinearBackward backward;
  if (num_bytes > 0) {
    EXPECT_EQ(activation, Activation::relu);
    forward.mask = mask.view();
    backward.input_mask = mask.view();
  }
  gpu().linear_forward(stream, forward);
  backward.x = on_h.view();
  backward.weight = on_w2.view();
  backward.grad_y = on_grad.view();
  backward.grad_x = result.view();
  backward.input_activation = activation;
  if (needs_preactivation(activation)) backward.input_preactivation = kept.view();
  gpu().linear_backward(stream, backward);
  EXPECT_LE(relative_error(on_h.grid().values, h.values), tolerance);
  EXPECT_LE(relative_error(result.grid().content(), grad_h.values), tolerance);
  EXPECT_TRUE(result.grid().margin_is_untouched());
  // With the bias gradient of the first layer, whose memory is aligned or not.
  for (const std::size_t skew : {0, 1}) {
    const OnGpu<T> sums(Array<T>(s.out, T(1.5)), skew);
    backward.input_grad_bias = sums.view();
    gpu().linear_backward(stream, backward);
    EXPECT_LE(relative_error(sums.values(), grad_bias.values), tolerance);
    EXPECT_LE(relative_error(result.grid().content(), grad_h.values), tolerance);
  }
}

TYPED_TEST(CudaLinear, ALayerTakesTheGradientOfTheActivationBeforeIt) {
  for (const Sizes& s :
       {Sizes{0, 3, 4}, Sizes{1, 1, 1}, Sizes{31, 33, 7}, Sizes{40, 24, 128}, Sizes{33, 20, 200}}) {
    for (const Activation activation : kActivations) {
      expect_stack<TypeParam>(s, activation, kRelativeError<TypeParam>);
    }
  }
}

TYPED_TEST(CudaLinear, AReluBetweenLayersLeavesABitPerElement) {
  using T = TypeParam;
  const GridOnGpu<T> x(random_grid<T>(40, 24, 0, 1)), w(random_grid<T>(130, 24, 0, 2)),
      y(Grid<T>(40, 130));
  LinearForward call{x.view(), w.view(), {}, y.view(), Activation::relu, {}};
  const std::size_t expected = sizeof(T) == 4 ? 40 * 256 / 8 : 0;  // float64 has no epilogues
  EXPECT_EQ(gpu().linear_mask_bytes(gpu_stream(), call), expected);
  call.activation = Activation::tanh;
  EXPECT_EQ(gpu().linear_mask_bytes(gpu_stream(), call), 0u);
}

class CudaTunedLinear : public GpuTest {};

TEST_F(CudaTunedLinear, IsRightWithWhateverWasFastest) {
  for (const Activation activation : kActivations) {
    expect_forward<float>({31, 33, 16}, activation, true, 0);
    expect_backward<float>({31, 33, 16}, activation, Write::overwrite);
    expect_stack<float>({31, 33, 16}, activation, kRelativeError<float>);
  }
}

class CudaLinearPrecision : public GpuTest {
 protected:
  void TearDown() override { set_matmul_precision(MatmulPrecision::highest); }
};

TEST_F(CudaLinearPrecision, LowerPrecisionsKeepTheirPromiseThroughTheEpilogues) {
  for (const Activation activation : {Activation::none, Activation::gelu_tanh}) {
    set_matmul_precision(MatmulPrecision::high);
    expect_stack<float>({40, 24, 128}, activation, 2e-3);
    set_matmul_precision(MatmulPrecision::medium);
    expect_stack<float>({40, 24, 128}, activation, 1e-2);
  }
}

}  // namespace
}  // namespace lockstep::kernels
