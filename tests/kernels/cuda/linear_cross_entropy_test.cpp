#include <cstdlib>

#include "on_gpu.h"

namespace lockstep::kernels {
namespace {

template <typename T>
using GpuLastLayer = TypedGpuTest<T>;
TYPED_TEST_SUITE(GpuLastLayer, Floating);

struct Sizes {
  std::size_t rows, in, classes;
};

// A call's tensors in the GPU's memory, from values that the CPU has, too.
template <typename T>
struct Layer {
  explicit Layer(const Sizes& s)
      : x(random_grid<T>(s.rows, s.in, 3, 1)),
        saved(random_grid<T>(s.rows, s.in, 1, 5)),
        weight(random_grid<T>(s.classes, s.in, 2, 2)),
        bias(random_array<T>(s.classes, 3)),
        labels(s.rows) {
    Rng rng(4);
    for (auto& label : labels.values) label = static_cast<std::int64_t>(rng.below(s.classes));
  }
  Grid<T> x, saved, weight;
  Array<T> bias;
  Array<std::int64_t> labels;
};

template <typename T>
struct Found {
  std::vector<T> loss, probabilities, grad_logits, grad_x;
  bool operator==(const Found&) const = default;
};

template <typename T>
Found<T> on_the_gpu(const Layer<T>& layer, LinearCrossEntropy call) {
  const std::size_t rows = layer.x.rows, classes = layer.weight.rows;
  GridOnGpu<T> x(layer.x), saved(layer.saved), weight(layer.weight);
  OnGpu<T> bias(layer.bias), loss(1), grad_loss(1, T(1.5));
  OnGpu<std::int64_t> labels(layer.labels);
  GridOnGpu<T> p(Grid<T>(rows, classes, 1)), grad(Grid<T>(rows, classes, 2));
  GridOnGpu<T> grad_x(Grid<T>(rows, layer.x.cols, 1));
  call.x = x.view();
  call.weight = weight.view();
  if (call.bias.num_elements > 0) call.bias = bias.view();
  call.labels = labels.view();
  call.probabilities = p.view();
  call.loss = loss.view();
  call.gradient = {grad_loss.view(), grad.view()};
  call.grad_x = grad_x.view();
  call.input_preactivation = saved.view();
  gpu().linear_cross_entropy(gpu_stream(), call);
  EXPECT_TRUE(p.grid().margin_is_untouched() && grad.grid().margin_is_untouched() &&
              grad_x.grid().margin_is_untouched());
  return {loss.values(), p.grid().content(), grad.grid().content(), grad_x.grid().content()};
}

Found<double> on_the_cpu(Layer<double> layer, LinearCrossEntropy call) {
  const std::size_t rows = layer.x.rows, classes = layer.weight.rows;
  Array<double> loss(1), grad_loss(1, 1.5);
  Grid<double> p(rows, classes), grad(rows, classes), grad_x(rows, layer.x.cols);
  call.x = layer.x.view();
  call.weight = layer.weight.view();
  if (call.bias.num_elements > 0) call.bias = layer.bias.view();
  call.labels = layer.labels.view();
  call.probabilities = p.view();
  call.loss = loss.view();
  call.gradient = {grad_loss.view(), grad.view()};
  call.grad_x = grad_x.view();
  call.input_preactivation = layer.saved.view();
  cpu().linear_cross_entropy(cpu_stream(), call);
  return {loss.values, p.content(), grad.content(), grad_x.content()};
}

// A call with nothing but what is no tensor; with a bias unless there is none.
LinearCrossEntropy some_call(Reduction reduction, Activation activation, std::size_t bias = 1) {
  LinearCrossEntropy call;
  call.bias.num_elements = bias;
  call.reduction = reduction;
  call.input_activation = activation;
  return call;
}

template <typename T>
void expect_as_the_cpu(const Sizes& s, const LinearCrossEntropy& call) {
  SCOPED_TRACE(::testing::Message() << s.rows << " x " << s.in << " x " << s.classes);
  const Layer<T> layer(s);
  Layer<double> in_doubles(s);
  in_doubles.x = in_double(layer.x);
  in_doubles.saved = in_double(layer.saved);
  in_doubles.weight = in_double(layer.weight);
  in_doubles.bias = in_double(layer.bias);
  const Found<T> found = on_the_gpu(layer, call);
  const Found<double> expected = on_the_cpu(in_doubles, call);
  // Of sums over the inputs, up to 4 each.
  const double tolerance = kTolerance<T> * (4 + static_cast<double>(s.in));
  expect_close(found.loss, expected.loss, tolerance);
  expect_close(found.probabilities, expected.probabilities, tolerance);
  expect_close(found.grad_logits, expected.grad_logits, 2 * tolerance);
  expect_close(found.grad_x, expected.grad_x, 16 * tolerance);
}

TYPED_TEST(GpuLastLayer, WithItsLossAndGradientsEqualsTheCpu) {
  for (const Sizes& s : {Sizes{1, 1, 1}, Sizes{64, 128, 10}, Sizes{65, 31, 16}, Sizes{9, 200, 17},
                         Sizes{33, 64, 32}, Sizes{300, 20, 3}, Sizes{8, 0, 4}}) {
    for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
      expect_as_the_cpu<TypeParam>(s, some_call(reduction, Activation::relu));
    }
  }
}

// More classes, or more weights than a block holds: a product, the loss, and a product.
TYPED_TEST(GpuLastLayer, IsFusedWhereItFitsAndRightWhereItDoesNot) {
  constexpr auto kDType = dtype_of<TypeParam>;
  constexpr std::size_t kMostInputs = 47 * 1024 / sizeof(TypeParam) / 16;  // of 16 classes
  const auto is_fused = [](std::size_t rows, std::size_t in, std::size_t classes) {
    return gpu().fuses_linear_cross_entropy(kDType, rows, in, classes);
  };
  EXPECT_TRUE(is_fused(8192, 128, 10));
  EXPECT_TRUE(is_fused(9, kMostInputs, 16));
  EXPECT_FALSE(is_fused(9, kMostInputs + 1, 16));
  EXPECT_FALSE(is_fused(9, 20, 33));
  EXPECT_FALSE(is_fused(std::size_t{1} << 20, 128, 10));
  for (const Sizes& s : {Sizes{9, kMostInputs, 16}, Sizes{5, 20, 33}, Sizes{3, kMostInputs + 1, 16},
                         Sizes{0, 5, 3}}) {
    expect_as_the_cpu<TypeParam>(s, some_call(Reduction::sum, Activation::relu));
  }
}

TYPED_TEST(GpuLastLayer, IsNotFusedWhereTheEnvironmentSaysSo) {
  const auto is_fused = [] {
    return gpu().fuses_linear_cross_entropy(dtype_of<TypeParam>, 64, 128, 10);
  };
  setenv("LOCKSTEP_FUSED_LOSS", "off", 1);
  EXPECT_FALSE(is_fused());
  expect_as_the_cpu<TypeParam>({64, 128, 10}, some_call(Reduction::mean, Activation::relu));
  setenv("LOCKSTEP_FUSED_LOSS", "maybe", 1);
  expect_error(ErrorCode::Usage, "[LOCKSTEP_FUSED_LOSS] is 'maybe'; use on or off", is_fused);
  unsetenv("LOCKSTEP_FUSED_LOSS");
  EXPECT_TRUE(is_fused());
}

TYPED_TEST(GpuLastLayer, TakesTheGradientOfEveryActivation) {
  for (const Activation activation : {Activation::none, Activation::gelu_erf, Activation::gelu_tanh,
                                      Activation::tanh, Activation::sigmoid}) {
    expect_as_the_cpu<TypeParam>({20, 40, 10}, some_call(Reduction::mean, activation));
  }
}

TYPED_TEST(GpuLastLayer, NeedsNoBias) {
  expect_as_the_cpu<TypeParam>({20, 40, 10}, some_call(Reduction::mean, Activation::relu, 0));
}

TYPED_TEST(GpuLastLayer, HasTheSameBitsEveryTime) {
  const Layer<TypeParam> layer({10'000, 40, 10});
  const LinearCrossEntropy call = some_call(Reduction::mean, Activation::relu);
  const auto first = on_the_gpu(layer, call);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(on_the_gpu(layer, call) == first);
}

TYPED_TEST(GpuLastLayer, KeepsNaNInItsRow) {
  using T = TypeParam;
  Layer<T> layer({4, 8, 3});
  layer.x(1, 5) = T(kNaN);
  const Found<T> found = on_the_gpu(layer, some_call(Reduction::sum, Activation::none));
  EXPECT_TRUE(std::isnan(found.loss[0]));
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(std::isnan(found.probabilities[3 * i]), i == 1);
    EXPECT_EQ(std::isnan(found.grad_x[8 * i]), i == 1);
  }
}

TYPED_TEST(GpuLastLayer, ReportsABadLabelOnceAndGivesItsRowNoGradient) {
  using T = TypeParam;
  for (const std::int64_t bad : {std::int64_t{3}, std::int64_t{-1}, std::int64_t{1} << 40}) {
    Layer<T> layer({4, 8, 3});
    const LinearCrossEntropy call = some_call(Reduction::sum, Activation::none);
    const Found<T> good = on_the_gpu(layer, call);
    layer.labels[2] = bad;
    expect_error(ErrorCode::Shape, std::to_string(bad), [&] { on_the_gpu(layer, call); });
    layer.labels[2] = 0;
    EXPECT_FALSE(std::isnan(good.loss[0]));
    EXPECT_EQ(on_the_gpu(layer, call).loss.size(), 1u) << "and no error is left";
  }
}

}  // namespace
}  // namespace lockstep::kernels
