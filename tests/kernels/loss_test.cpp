#include "reference.h"

namespace lockstep::kernels {
namespace {

template <typename T>
class Loss : public ::testing::Test {};
TYPED_TEST_SUITE(Loss, Floating);

using Labels = std::vector<std::int64_t>;

// Labels, logits and what the two passes make of them, on the device.
template <typename T>
struct CrossEntropy {
  CrossEntropy(const Grid<T>& values, const Labels& classes, Reduction reduce = Reduction::sum)
      : reduction(reduce),
        logits(values),
        probabilities(values.rows, values.cols, 1),
        grad(values.rows, values.cols, 3),
        labels(classes) {}
  void forward(Stream& stream, const GridOnDevice<T>& to) const {
    tested().softmax_cross_entropy_forward(
        stream, {logits.view(), labels.view(), reduction, to.view(), loss.view()});
  }
  void backward(Stream& stream, const GridOnDevice<T>& to) const {
    tested().softmax_cross_entropy_backward(
        stream, {probabilities.view(), labels.view(), reduction, grad_loss.view(), to.view()});
  }
  Reduction reduction;
  GridOnDevice<T> logits, probabilities, grad;
  OnDevice<std::int64_t> labels;
  OnDevice<T> loss{std::size_t{1}}, grad_loss{std::size_t{1}, T(0.5)};
};

struct Expected {
  double loss = 0;
  std::vector<double> probabilities, grad;
};

// By the definition, for a gradient of the loss of 0.5.
template <typename T>
Expected expected(const Grid<T>& logits, const Labels& labels, Reduction reduction) {
  Expected result;
  const double divisor = reduction == Reduction::mean ? double(logits.rows) : 1;
  for (std::size_t i = 0; i < logits.rows; ++i) {
    const T *row = logits.row(i), *largest = std::max_element(row, row + logits.cols);
    std::vector<double> p;
    double sum = 0;
    for (std::size_t j = 0; j < logits.cols; ++j) {
      p.push_back(std::exp(double(row[j]) - double(*largest)));
      sum += p.back();
    }
    const auto label = std::size_t(labels[i]);
    result.loss -= std::log(p[label] / sum) / divisor;
    for (std::size_t j = 0; j < logits.cols; ++j) {
      result.probabilities.push_back(p[j] / sum);
      result.grad.push_back((p[j] / sum - (j == label)) * 0.5 / divisor);
    }
  }
  return result;
}

TYPED_TEST(Loss, CrossEntropyForwardAndBackwardEqualTheDefinition) {
  using T = TypeParam;
  for (const std::size_t rows : {1u, 3u, 65u, 1000u, 5000u}) {
    // A warp of a GPU takes a row, a block one with many classes; some rows are aligned.
    for (const std::size_t classes : {1u, 2u, 10u, 16u, 17u, 129u, 1024u, 1025u, 4096u, 9001u}) {
      if (rows * classes > 60'000) continue;
      const auto logits = random_grid<T>(rows, classes, 2, rows * classes);
      Labels labels;
      for (std::size_t i = 0; i < rows; ++i) labels.push_back(std::int64_t(i * 7 % classes));
      for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
        SCOPED_TRACE(::testing::Message() << rows << " x " << classes << ", " << int(reduction));
        const Expected by_definition = expected(logits, labels, reduction);
        for_thread_counts([&](Stream& stream) {
          const CrossEntropy<T> c(logits, labels, reduction);
          c.forward(stream, c.probabilities);
          expect_close(c.loss.values(), {by_definition.loss}, 4 * kTolerance<T>);
          const auto probabilities = c.probabilities.content();
          expect_close(probabilities, by_definition.probabilities);
          c.backward(stream, c.grad);
          const auto grad = c.grad.content();
          expect_close(grad, by_definition.grad);
          // In place they are the same.
          c.backward(stream, c.probabilities);
          EXPECT_EQ(c.probabilities.content(), grad);
          c.forward(stream, c.logits);
          EXPECT_EQ(c.logits.content(), probabilities);
        });
      }
    }
  }
}

TYPED_TEST(Loss, CrossEntropyOfNoRowsHasNoMean) {
  const CrossEntropy<TypeParam> c(Grid<TypeParam>(0, 5), {}, Reduction::mean);
  c.forward(stream(), c.probabilities);
  c.backward(stream(), c.grad);
  EXPECT_TRUE(std::isnan(c.loss.value()));
}

TYPED_TEST(Loss, CrossEntropyKeepsNaNInItsRow) {
  using T = TypeParam;
  for (const std::size_t classes : {7u, 40u, 300u, 1500u, 5000u}) {
    auto logits = random_grid<T>(6, classes, 0, 1);
    logits(1, classes / 2) = T(kNaN);
    for (std::size_t j = 0; j < classes; ++j) {
      for (const std::size_t row : {2u, 4u, 5u}) logits(row, j) = T(-kInfinity);  // masked
    }
    logits(2, classes - 1) = T(-3);
    logits(3, 0) = T(1000);  // the others underflow
    logits(5, classes - 1) = T(kNaN);
    const CrossEntropy<T> c(logits, {0, 0, std::int64_t(classes) - 1, 0, 0, 0});
    c.forward(stream(), c.probabilities);
    EXPECT_TRUE(std::isnan(c.loss.value()));
    const auto p = c.probabilities.grid();
    for (std::size_t j = 0; j < classes; ++j) {
      ASSERT_FALSE(std::isnan(p(0, j)));
      for (const std::size_t row : {1u, 4u, 5u}) ASSERT_TRUE(std::isnan(p(row, j)));
      ASSERT_EQ(p(2, j), j + 1 == classes ? T(1) : T(0));
      ASSERT_EQ(p(3, j), j == 0 ? T(1) : T(0));
    }
  }
}

// A CPU says so at the call, a GPU where its work is waited for next.
TYPED_TEST(Loss, CrossEntropyReportsALabelOutsideTheClasses) {
  using T = TypeParam;
  for (const std::int64_t classes : {10, 100, 5000}) {
    for (const std::int64_t wrong : {classes, std::int64_t{-1}, std::int64_t{1} << 40}) {
      const CrossEntropy<T> c(random_grid<T>(3, std::size_t(classes), 0, 1), {1, wrong, 0});
      const std::string text = "label " + std::to_string(wrong);
      expect_error(ErrorCode::Shape, text, [&] {
        c.forward(stream(), c.probabilities);
        c.loss.values();
      });
      expect_error(ErrorCode::Shape, text, [&] {
        c.backward(stream(), c.grad);
        c.grad.content();
      });
    }
  }
}

TYPED_TEST(Loss, ABadLabelHarmsNoOtherRow) {
  using T = TypeParam;
  if (test_device_type() == DeviceType::cpu) GTEST_SKIP() << "a CPU refuses the whole call";
  for (const std::size_t classes : {10u, 100u, 5000u}) {
    const CrossEntropy<T> c(random_grid<T>(3, classes, 0, 1), {1, -1, 0});
    c.forward(stream(), c.probabilities);
    EXPECT_THROW(c.loss.values(), Error);
    EXPECT_TRUE(std::isnan(c.loss.value()));
    c.backward(stream(), c.grad);
    EXPECT_THROW(c.grad.content(), Error);
    const auto grad = c.grad.grid();
    for (std::size_t j = 0; j < classes; ++j) {
      EXPECT_EQ(grad(1, j), T(0));
      EXPECT_NE(grad(0, j), T(0));
    }
  }
}

TYPED_TEST(Loss, SquaredErrorForwardAndBackwardEqualTheDefinition) {
  using T = TypeParam;
  for (const std::size_t size : kSizes) {
    for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
      const auto x = random_values<T>(size, 1), target = random_values<T>(size, 2);
      const double divisor = reduction == Reduction::mean ? double(size) : 1;
      double squares = 0;
      std::vector<double> grad;
      for (std::size_t i = 0; i < size; ++i) {
        const double difference = double(x[i]) - double(target[i]);
        squares += difference * difference;
        grad.push_back(2 * difference * 0.5 / divisor);
      }
      std::vector<T> losses;
      for_thread_counts([&](Stream& stream) {
        const OnDevice<T> on_x(x), on_target(target), loss(1), grad_loss(1, T(0.5)), grad_x(size);
        tested().mse_forward(stream, {on_x.view(), on_target.view(), reduction, loss.view()});
        expect_close(loss.values(), {squares / divisor}, 4 * kTolerance<T>);
        losses.push_back(loss.value());
        tested().mse_backward(
            stream, {on_x.view(), on_target.view(), reduction, grad_loss.view(), grad_x.view()});
        expect_close(grad_x.values(), grad);
      });
      if (size > 0) {
        EXPECT_EQ(losses, std::vector<T>(losses.size(), losses[0]));
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels
