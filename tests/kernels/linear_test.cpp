#include "activation_reference.h"
#include "kernels/matmul_precision.h"
#include "layer_reference.h"

namespace lockstep::kernels {
namespace {

// Untuned, so that the bits of a result do not depend on the clock.
template <typename T>
class Linear : public ::testing::Test {
  UntunedScope untuned_;
};
TYPED_TEST_SUITE(Linear, Floating);

constexpr LayerSizes kLayers[] = {{0, 3, 4},       {3, 0, 5},     {1, 1, 1},  {3, 7, 31},
                                  {31, 33, 7},     {65, 5, 10},   {65, 5, 1}, {33, 1000, 3},
                                  {200, 300, 290}, {400, 31, 129}};

template <typename T>
void expect_forward(const LayerSizes& s, bool has_bias) {
  const Layer<T> layer(s);
  const double scale = 1 + double(s.in) / 10;
  const auto before = product(layer, has_bias);
  const GridOnDevice<T> x(layer.x), weight(layer.weight);
  const OnDevice<T> bias(layer.bias);
  const TensorView bias_view = has_bias ? bias.view() : TensorView{};
  for (const Activation activation : kActivations) {
    SCOPED_TRACE(::testing::Message() << s.batch << " x " << s.in << " x " << s.out << ", "
                                      << int(activation) << (has_bias ? ", bias" : ""));
    std::vector<double> after;
    for (const double value : before) after.push_back(activate(activation, value));
    for_thread_counts([&](Stream& stream) {
      const GridOnDevice<T> y(s.batch, s.out, 3), again(s.batch, s.out), kept(s.batch, s.out, 1);
      const auto forward = [&](const GridOnDevice<T>& to, MatrixView preactivation) {
        tested().linear_forward(
            stream, {x.view(), weight.view(), bias_view, activation, to.view(), preactivation});
        expect_close(to.content(), after, kProductTolerance<T>, scale);
      };
      forward(y, {});
      forward(again, kept.view());
      expect_close(kept.content(), before, kProductTolerance<T>, scale);
    });
  }
}

TYPED_TEST(Linear, ForwardEqualsTheDefinitionForEveryActivation) {
  for (const LayerSizes& s : kLayers) {
    expect_forward<TypeParam>(s, true);
    if (s.batch < 100) expect_forward<TypeParam>(s, false);
  }
}

TYPED_TEST(Linear, BackwardEqualsItsFormulas) {
  using T = TypeParam;
  for (const LayerSizes& s : kLayers) {
    SCOPED_TRACE(::testing::Message() << s.batch << " x " << s.in << " x " << s.out);
    const Layer<T> layer(s);
    const Gradients expected = expected_gradients(layer);
    const GridOnDevice<T> x(layer.x), weight(layer.weight), grad_z(layer.grad_z);
    for_thread_counts([&](Stream& stream) {
      const GridOnDevice<T> grad_x(s.batch, s.in, 1), grad_w(s.out, s.in, 3);
      const OnDevice<T> grad_b(s.out, T(1.5));
      tested().linear_backward(stream, {x.view(), weight.view(), grad_z.view(), grad_x.view(),
                                        grad_w.view(), grad_b.view()});
      const double tolerance = 4 * kProductTolerance<T>, rows = 1 + double(s.batch);
      expect_close(grad_x.content(), expected.x, tolerance, 1 + double(s.out) / 10);
      expect_close(grad_w.content(), expected.weight, tolerance, rows);
      expect_close(grad_b.values(), expected.bias, tolerance, rows);
    });
  }
}

// All that a backward pass writes, the wanted of it.
template <typename T>
std::vector<std::vector<T>> gradients(Stream& stream, const Layer<T>& layer, bool of_x = true,
                                      bool of_weight = true, bool of_bias = true) {
  const std::size_t batch = layer.x.rows, in = layer.x.cols, out = layer.weight.rows;
  const GridOnDevice<T> x(layer.x), weight(layer.weight), grad_z(layer.grad_z);
  const GridOnDevice<T> grad_x(batch, in), grad_w(out, in);
  const OnDevice<T> grad_b(out);
  tested().linear_backward(
      stream, {x.view(), weight.view(), grad_z.view(), of_x ? grad_x.view() : MatrixView{},
               of_weight ? grad_w.view() : MatrixView{}, of_bias ? grad_b.view() : TensorView{}});
  return {grad_x.content(), grad_w.content(), grad_b.values()};
}

TYPED_TEST(Linear, BackwardLeavesOutWhatIsNotWanted) {
  const Layer<TypeParam> layer({40, 12, 9});
  const auto all = gradients(stream_with(2), layer);
  for (std::size_t wanted = 0; wanted < 3; ++wanted) {
    const auto one = gradients(stream_with(2), layer, wanted == 0, wanted == 1, wanted == 2);
    EXPECT_EQ(one[wanted], all[wanted]);
  }
}

TYPED_TEST(Linear, HasTheSameBitsForAnyThreads) {
  using T = TypeParam;
  const Layer<T> layer({500, 100, 70});
  std::vector<std::vector<T>> first;
  for_thread_counts([&](Stream& stream) {
    const GridOnDevice<T> x(layer.x), weight(layer.weight), y(500, 70);
    tested().linear_forward(stream, {x.view(), weight.view(), {}, Activation::tanh, y.view(), {}});
    auto results = gradients(stream, layer);
    results.push_back(y.content());
    if (first.empty()) first = results;
    EXPECT_EQ(results, first);
  });
}

}  // namespace
}  // namespace lockstep::kernels
