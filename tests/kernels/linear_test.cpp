#include "activation_reference.h"
#include "reference.h"

namespace lockstep::kernels {
namespace {

template <typename T>
class Linear : public ::testing::Test {};
TYPED_TEST_SUITE(Linear, Floating);

struct Sizes {
  std::size_t batch, in, out;
};
constexpr Sizes kLayers[] = {{0, 3, 4},   {1, 1, 1},     {3, 7, 31},      {31, 33, 7},
                             {65, 5, 10}, {33, 1000, 3}, {200, 300, 290}, {400, 31, 129}};

// x w^T + bias, in double. Tests are compiled without optimisation, so the inner loops of their
// references walk along rows by pointer.
template <typename T>
std::vector<double> product(const Grid<T>& x, const Grid<T>& w, const Array<T>* bias) {
  std::vector<double> result;
  for (std::size_t i = 0; i < x.rows; ++i) {
    for (std::size_t j = 0; j < w.rows; ++j) {
      double sum = bias ? double(bias->values[j]) : 0;
      const T *a = x.row(i), *b = w.row(j);
      for (std::size_t k = 0; k < x.cols; ++k) sum += double(a[k]) * double(b[k]);
      result.push_back(sum);
    }
  }
  return result;
}

TYPED_TEST(Linear, ForwardEqualsTheDefinitionForEveryActivation) {
  using T = TypeParam;
  for (const Sizes& s : kLayers) {
    auto x = random_grid<T>(s.batch, s.in, 2, 1);
    auto w = random_grid<T>(s.out, s.in, 1, 2);
    for (T& value : w.values) value *= T(0.1);
    auto bias = random_array<T>(s.out, 3);
    const auto before = product(x, w, &bias);
    for (const Activation activation : kActivations) {
      SCOPED_TRACE(::testing::Message()
                   << s.batch << " x " << s.in << " x " << s.out << ", " << int(activation));
      std::vector<double> after;
      for (const double value : before) after.push_back(activate(activation, value));
      for_thread_counts([&](Stream& stream) {
        Grid<T> y(s.batch, s.out, 3), kept(s.batch, s.out, 1);
        cpu().linear_forward(stream, x.view(), w.view(), bias.view(), activation, y.view(), {});
        expect_close(y.content(), after, kTolerance<T>, 1 + double(s.in) / 10);
        EXPECT_TRUE(y.margin_is_untouched());
        Grid<T> again(s.batch, s.out);
        cpu().linear_forward(stream, x.view(), w.view(), bias.view(), activation, again.view(),
                             kept.view());
        EXPECT_EQ(again.content(), y.content());
        expect_close(kept.content(), before, kTolerance<T>, 1 + double(s.in) / 10);
        EXPECT_TRUE(kept.margin_is_untouched());
      });
    }
  }
}

TYPED_TEST(Linear, ForwardWorksWithoutABias) {
  using T = TypeParam;
  auto x = random_grid<T>(9, 20, 0, 1);
  auto w = random_grid<T>(5, 20, 0, 2);
  Grid<T> y(9, 5), active(9, 5);
  cpu().linear_forward(stream_with(1), x.view(), w.view(), {}, Activation::none, y.view(), {});
  expect_close(y.content(), product<T>(x, w, nullptr), kTolerance<T>, 20);
  cpu().linear_forward(stream_with(1), x.view(), w.view(), {}, Activation::relu, active.view(), {});
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    EXPECT_EQ(active.values[i], std::max(y.values[i], T(0)));
  }
}

template <typename T>
struct Gradients {
  std::vector<double> x, weight, bias;
};

// The formulas by plain loops.
template <typename T>
Gradients<T> reference_gradients(const Grid<T>& x, const Grid<T>& w, const Grid<T>& grad_z) {
  const std::size_t batch = x.rows, in = x.cols, out = w.rows;
  Gradients<T> result{std::vector<double>(batch * in), std::vector<double>(out * in),
                      std::vector<double>(out)};
  for (std::size_t i = 0; i < batch; ++i) {
    for (std::size_t j = 0; j < out; ++j) {
      const double g = double(grad_z(i, j));
      result.bias[j] += g;
      double *grad_x = &result.x[i * in], *grad_w = &result.weight[j * in];
      const T *x_row = x.row(i), *w_row = w.row(j);
      for (std::size_t k = 0; k < in; ++k) {
        grad_x[k] += g * double(w_row[k]);
        grad_w[k] += g * double(x_row[k]);
      }
    }
  }
  return result;
}

TYPED_TEST(Linear, BackwardEqualsItsFormulas) {
  using T = TypeParam;
  for (const Sizes& s : kLayers) {
    SCOPED_TRACE(::testing::Message() << s.batch << " x " << s.in << " x " << s.out);
    auto x = random_grid<T>(s.batch, s.in, 2, 1);
    auto w = random_grid<T>(s.out, s.in, 1, 2);
    auto grad_z = random_grid<T>(s.batch, s.out, 4, 3);
    const auto expected = reference_gradients<T>(x, w, grad_z);
    for_thread_counts([&](Stream& stream) {
      Grid<T> grad_x(s.batch, s.in, 1), grad_w(s.out, s.in, 3);
      Array<T> grad_b(s.out, T(1.5));
      cpu().linear_backward(stream, x.view(), w.view(), grad_z.view(), grad_x.view(), grad_w.view(),
                            grad_b.view());
      expect_close(grad_x.content(), expected.x, 4 * kTolerance<T>, 1 + double(s.out) / 10);
      expect_close(grad_w.content(), expected.weight, 4 * kTolerance<T>, 1 + double(s.batch));
      expect_close(grad_b.values, expected.bias, 4 * kTolerance<T>, 1 + double(s.batch));
      EXPECT_TRUE(grad_x.margin_is_untouched() && grad_w.margin_is_untouched());
    });
  }
}

TYPED_TEST(Linear, BackwardLeavesOutWhatIsNotWanted) {
  using T = TypeParam;
  auto x = random_grid<T>(40, 12, 0, 1);
  auto w = random_grid<T>(9, 12, 0, 2);
  auto grad_z = random_grid<T>(40, 9, 0, 3);
  const auto run = [&](MatrixView grad_x, MatrixView grad_w, TensorView grad_b) {
    cpu().linear_backward(stream_with(2), x.view(), w.view(), grad_z.view(), grad_x, grad_w,
                          grad_b);
  };
  Grid<T> grad_x(40, 12), grad_w(9, 12), only_x(40, 12), only_w(9, 12);
  Array<T> grad_b(9), only_b(9);
  run(grad_x.view(), grad_w.view(), grad_b.view());
  run(only_x.view(), {}, {});
  run({}, only_w.view(), {});
  run({}, {}, only_b.view());
  EXPECT_EQ(only_x.values, grad_x.values);
  EXPECT_EQ(only_w.values, grad_w.values);
  EXPECT_EQ(only_b.values, grad_b.values);
}

TYPED_TEST(Linear, HasTheSameBitsForAnyNumberOfThreads) {
  using T = TypeParam;
  auto x = random_grid<T>(500, 100, 0, 1);
  auto w = random_grid<T>(70, 100, 0, 2);
  auto grad_z = random_grid<T>(500, 70, 0, 3);
  std::vector<std::vector<T>> results;
  for_thread_counts([&](Stream& stream) {
    Grid<T> y(500, 70), grad_x(500, 100), grad_w(70, 100);
    Array<T> grad_b(70);
    cpu().linear_forward(stream, x.view(), w.view(), {}, Activation::tanh, y.view(), {});
    cpu().linear_backward(stream, x.view(), w.view(), grad_z.view(), grad_x.view(), grad_w.view(),
                          grad_b.view());
    auto all = y.values;
    for (auto* part : {&grad_x.values, &grad_w.values, &grad_b.values}) {
      all.insert(all.end(), part->begin(), part->end());
    }
    results.push_back(all);
  });
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
}

}  // namespace
}  // namespace lockstep::kernels
