#include "reference.h"

namespace lockstep::kernels {
namespace {

template <typename T>
class Loss : public ::testing::Test {};
TYPED_TEST_SUITE(Loss, Floating);

struct Sizes {
  std::size_t rows, classes;
};
constexpr Sizes kBatches[] = {{1, 1}, {3, 7}, {31, 10}, {257, 33}, {5000, 10}};

Array<std::int64_t> some_labels(std::size_t rows, std::size_t classes) {
  Array<std::int64_t> labels(rows);
  for (std::size_t i = 0; i < rows; ++i) labels[i] = std::int64_t(i * 7 % classes);
  return labels;
}

// Softmax of one row.
template <typename T>
std::vector<double> softmax(const Grid<T>& logits, std::size_t row) {
  double largest = double(logits(row, 0));
  for (std::size_t j = 1; j < logits.cols; ++j) largest = std::max(largest, double(logits(row, j)));
  std::vector<double> p;
  double sum = 0;
  for (std::size_t j = 0; j < logits.cols; ++j) {
    p.push_back(std::exp(double(logits(row, j)) - largest));
    sum += p.back();
  }
  for (double& value : p) value /= sum;
  return p;
}

TYPED_TEST(Loss, CrossEntropyForwardAndBackwardEqualTheDefinition) {
  using T = TypeParam;
  for (const Sizes& s : kBatches) {
    for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
      SCOPED_TRACE(::testing::Message() << s.rows << " x " << s.classes);
      auto logits = random_grid<T>(s.rows, s.classes, 2, 1);
      auto labels = some_labels(s.rows, s.classes);
      const double divisor = reduction == Reduction::mean ? double(s.rows) : 1;
      double loss = 0;
      std::vector<double> p, grad;
      for (std::size_t i = 0; i < s.rows; ++i) {
        const auto row = softmax(logits, i);
        const auto label = std::size_t(labels[i]);
        loss -= std::log(row[label]) / divisor;
        for (std::size_t j = 0; j < s.classes; ++j) {
          p.push_back(row[j]);
          grad.push_back((row[j] - (j == label ? 1 : 0)) * 0.5 / divisor);
        }
      }
      for_thread_counts([&](Stream& stream) {
        Grid<T> probabilities(s.rows, s.classes, 1), grad_logits(s.rows, s.classes, 3);
        Array<T> result(1), grad_loss(1, T(0.5));
        cpu().softmax_cross_entropy_forward(stream, logits.view(), labels.view(), reduction,
                                            probabilities.view(), result.view());
        expect_close(result.values, {loss}, 4 * kTolerance<T>);
        expect_close(probabilities.content(), p);
        cpu().softmax_cross_entropy_backward(stream, probabilities.view(), labels.view(), reduction,
                                             grad_loss.view(), grad_logits.view());
        expect_close(grad_logits.content(), grad);
        EXPECT_TRUE(grad_logits.margin_is_untouched() && probabilities.margin_is_untouched());
        const auto separate = grad_logits.content();
        cpu().softmax_cross_entropy_backward(stream, probabilities.view(), labels.view(), reduction,
                                             grad_loss.view(), probabilities.view());
        EXPECT_EQ(probabilities.content(), separate);
      });
    }
  }
}

TYPED_TEST(Loss, CrossEntropyOfLargeLogitsStaysFinite) {
  using T = TypeParam;
  Grid<T> logits(2, 2), p(2, 2);
  logits.values = {10000, -10000, 10000, 9999};
  Array<std::int64_t> labels(std::vector<std::int64_t>{1, 0});
  Array<T> loss(1);
  cpu().softmax_cross_entropy_forward(stream_with(1), logits.view(), labels.view(), Reduction::sum,
                                      p.view(), loss.view());
  EXPECT_NEAR(double(loss[0]), 20000 + std::log1p(std::exp(-1.0)), 0.01);
}

TYPED_TEST(Loss, CrossEntropyGivesInfinityForAnImpossibleLabelAndNaNForNaN) {
  using T = TypeParam;
  Grid<T> logits(1, 3), p(1, 3);
  Array<std::int64_t> labels(1);
  Array<T> loss(1);
  logits.values = {T(-kInfinity), 1, 2};
  const auto run = [&] {
    cpu().softmax_cross_entropy_forward(stream_with(1), logits.view(), labels.view(),
                                        Reduction::mean, p.view(), loss.view());
    return double(loss[0]);
  };
  EXPECT_EQ(run(), kInfinity);
  EXPECT_EQ(p(0, 0), T(0));
  logits.values = {0, T(kNaN), 2};
  EXPECT_TRUE(std::isnan(run()));
}

TYPED_TEST(Loss, CrossEntropyRejectsALabelOutsideTheClasses) {
  Grid<TypeParam> logits(2, 3), p(2, 3);
  Array<TypeParam> loss(1), grad_loss(1);
  for (const std::int64_t wrong : {std::int64_t{3}, std::int64_t{-1}}) {
    Array<std::int64_t> labels(std::vector<std::int64_t>{0, wrong});
    expect_error(ErrorCode::Shape, "[cross_entropy] label", [&] {
      cpu().softmax_cross_entropy_forward(stream_with(1), logits.view(), labels.view(),
                                          Reduction::mean, p.view(), loss.view());
    });
    expect_error(ErrorCode::Shape, "[cross_entropy backward] label", [&] {
      cpu().softmax_cross_entropy_backward(stream_with(1), p.view(), labels.view(), Reduction::mean,
                                           grad_loss.view(), logits.view());
    });
  }
}

TYPED_TEST(Loss, SquaredErrorForwardAndBackwardEqualTheDefinition) {
  using T = TypeParam;
  for (const std::size_t size : kSizes) {
    if (size == 0) continue;
    for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
      auto x = random_array<T>(size, 1);
      auto target = random_array<T>(size, 2);
      const double divisor = reduction == Reduction::mean ? double(size) : 1;
      double loss = 0;
      std::vector<double> grad;
      for (std::size_t i = 0; i < size; ++i) {
        const double difference = double(x[i]) - double(target[i]);
        loss += difference * difference / divisor;
        grad.push_back(2 * difference * 0.5 / divisor);
      }
      std::vector<T> losses;
      for_thread_counts([&](Stream& stream) {
        Array<T> result(1), grad_loss(1, T(0.5)), grad_x(size);
        cpu().mse_forward(stream, x.view(), target.view(), reduction, result.view());
        expect_close(result.values, {loss}, 4 * kTolerance<T>);
        losses.push_back(result[0]);
        cpu().mse_backward(stream, x.view(), target.view(), reduction, grad_loss.view(),
                           grad_x.view());
        expect_close(grad_x.values, grad);
      });
      EXPECT_EQ(losses, std::vector<T>(3, losses[0]));
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels
