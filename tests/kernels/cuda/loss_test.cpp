#include "on_gpu.h"

namespace lockstep::kernels {
namespace {

template <typename T>
using GpuLoss = TypedGpuTest<T>;
TYPED_TEST_SUITE(GpuLoss, Floating);

constexpr Reduction kReductions[] = {Reduction::mean, Reduction::sum};

Array<std::int64_t> random_labels(std::size_t rows, std::size_t classes) {
  Array<std::int64_t> labels(rows);
  Rng rng(rows + classes);
  for (auto& label : labels.values) label = static_cast<std::int64_t>(rng.below(classes));
  return labels;
}

TYPED_TEST(GpuLoss, CrossEntropyAndItsGradientEqualTheCpu) {
  using T = TypeParam;
  for (const std::size_t rows : {0u, 1u, 3u, 64u, 65u, 1000u}) {
    for (const std::size_t classes : {1u, 2u, 10u, 16u, 17u, 100u, 129u, 1000u, 1025u, 3001u}) {
      if (rows * classes > 200'000) continue;
      SCOPED_TRACE(::testing::Message() << rows << " x " << classes);
      const auto logits = random_grid<T>(rows, classes, 3, rows * classes);
      auto labels = random_labels(rows, classes);
      const auto grad_loss = Array<T>(std::vector<T>{T(1.5)});
      auto logits2 = in_double(logits);
      auto grad_loss2 = in_double(grad_loss);
      GridOnGpu<T> logits1(logits), p(Grid<T>(rows, classes, 1)), grad(Grid<T>(rows, classes, 2));
      OnGpu<T> grad_loss1(grad_loss), loss(1);
      OnGpu<std::int64_t> labels1(labels);
      for (const Reduction reduction : kReductions) {
        Grid<double> p2(rows, classes), grad2(rows, classes);
        Array<double> loss2(1);
        cpu().softmax_cross_entropy_forward(cpu_stream(), logits2.view(), labels.view(), reduction,
                                            p2.view(), loss2.view());
        gpu().softmax_cross_entropy_forward(gpu_stream(), logits1.view(), labels1.view(), reduction,
                                            p.view(), loss.view());
        cpu().softmax_cross_entropy_backward(cpu_stream(), p2.view(), labels.view(), reduction,
                                             grad_loss2.view(), grad2.view());
        gpu().softmax_cross_entropy_backward(gpu_stream(), p.view(), labels1.view(), reduction,
                                             grad_loss1.view(), grad.view());
        expect_close(loss.values(), loss2.values);
        expect_close(p.grid().content(), p2.content());
        expect_close(grad.grid().content(), grad2.content());
        ASSERT_TRUE(p.grid().margin_is_untouched() && grad.grid().margin_is_untouched());
        GridOnGpu<T> in_place(logits);
        OnGpu<T> loss_in_place(1);
        gpu().softmax_cross_entropy_forward(gpu_stream(), in_place.view(), labels1.view(),
                                            reduction, in_place.view(), loss_in_place.view());
        if (rows > 0) {
          EXPECT_EQ(loss_in_place.values(), loss.values());
        }
        EXPECT_EQ(in_place.grid().content(), p.grid().content());
        gpu().softmax_cross_entropy_backward(gpu_stream(), p.view(), labels1.view(), reduction,
                                             grad_loss1.view(), p.view());  // in place
        expect_close(p.grid().content(), grad2.content());
      }
    }
  }
}

TYPED_TEST(GpuLoss, CrossEntropyIsTheSameBitForBitEveryTime) {
  using T = TypeParam;
  GridOnGpu<T> logits(random_grid<T>(8192, 10, 0, 1)), p(Grid<T>(8192, 10));
  OnGpu<std::int64_t> labels(random_labels(8192, 10));
  OnGpu<T> loss(1), again(1);
  for (int i = 0; i < 5; ++i) {
    gpu().softmax_cross_entropy_forward(gpu_stream(), logits.view(), labels.view(), Reduction::mean,
                                        p.view(), (i ? again : loss).view());
    if (i > 0) {
      ASSERT_EQ(loss.values(), again.values());
    }
  }
}

TYPED_TEST(GpuLoss, CrossEntropyKeepsNaNInItsRowAndTakesMaskedLogits) {
  using T = TypeParam;
  for (const std::size_t classes : {7u, 40u, 300u, 1500u}) {
    auto logits = random_grid<T>(4, classes, 0, 1);
    logits(1, classes / 2) = T(kNaN);
    for (std::size_t j = 0; j + 1 < classes; ++j) logits(2, j) = T(-kInfinity);
    logits(3, 0) = T(1000);  // the others underflow
    GridOnGpu<T> logits1(logits), p(Grid<T>(4, classes));
    const auto last = static_cast<std::int64_t>(classes) - 1;
    OnGpu<std::int64_t> labels(std::vector<std::int64_t>{0, 0, last, 0});
    OnGpu<T> loss(1);
    gpu().softmax_cross_entropy_forward(gpu_stream(), logits1.view(), labels.view(), Reduction::sum,
                                        p.view(), loss.view());
    const auto result = p.grid();
    EXPECT_TRUE(std::isnan(loss.values()[0]));
    for (std::size_t j = 0; j < classes; ++j) {
      EXPECT_FALSE(std::isnan(result(0, j)));
      EXPECT_TRUE(std::isnan(result(1, j)));
      EXPECT_EQ(result(2, j), j + 1 == classes ? T(1) : T(0));
      EXPECT_EQ(result(3, j), j == 0 ? T(1) : T(0));
    }
  }
}

TYPED_TEST(GpuLoss, ABadLabelIsReportedOnceAndHarmsNoOtherRow) {
  using T = TypeParam;
  for (const std::size_t classes : {10u, 100u, 1500u}) {
    for (const std::int64_t bad :
         {std::int64_t(classes), std::int64_t{-1}, std::int64_t{1} << 40}) {
      GridOnGpu<T> logits(random_grid<T>(3, classes, 0, 1)), p(Grid<T>(3, classes));
      OnGpu<std::int64_t> labels(std::vector<std::int64_t>{1, bad, 0});
      OnGpu<T> loss(1), grad_loss(1, T(1));
      const auto forward = [&](OnGpu<std::int64_t>& these) {
        gpu().softmax_cross_entropy_forward(gpu_stream(), logits.view(), these.view(),
                                            Reduction::mean, p.view(), loss.view());
      };
      forward(labels);
      expect_error(ErrorCode::Shape, std::to_string(bad), [&] { loss.values(); });
      EXPECT_TRUE(std::isnan(loss.values()[0]));
      gpu().softmax_cross_entropy_backward(gpu_stream(), p.view(), labels.view(), Reduction::mean,
                                           grad_loss.view(), p.view());
      expect_error(ErrorCode::Shape, std::to_string(bad), [&] { p.grid(); });
      const auto grad = p.grid();
      for (std::size_t j = 0; j < classes; ++j) {
        EXPECT_EQ(grad(1, j), T(0));
        EXPECT_NE(grad(0, j), T(0));
      }
      OnGpu<std::int64_t> good(std::vector<std::int64_t>{1, 2, 0});
      forward(good);
      EXPECT_FALSE(std::isnan(loss.values()[0]));
    }
  }
}

TYPED_TEST(GpuLoss, MseAndItsGradientEqualTheCpu) {
  using T = TypeParam;
  for (const std::size_t size : kGpuSizes) {
    for (const Reduction reduction : kReductions) {
      const auto x = random_array<T>(size, 1), target = random_array<T>(size, 2);
      const auto grad_loss = Array<T>(std::vector<T>{T(0.75)});
      auto x2 = in_double(x), target2 = in_double(target), grad_loss2 = in_double(grad_loss);
      Array<double> loss2(1), grad2(size);
      cpu().mse_forward(cpu_stream(), x2.view(), target2.view(), reduction, loss2.view());
      cpu().mse_backward(cpu_stream(), x2.view(), target2.view(), reduction, grad_loss2.view(),
                         grad2.view());
      OnGpu<T> x1(x), target1(target), grad_loss1(grad_loss), loss(1), grad(size);
      gpu().mse_forward(gpu_stream(), x1.view(), target1.view(), reduction, loss.view());
      gpu().mse_backward(gpu_stream(), x1.view(), target1.view(), reduction, grad_loss1.view(),
                         grad.view());
      expect_close(loss.values(), loss2.values);
      expect_close(grad.values(), grad2.values, 3 * kTolerance<T>, size ? 1.0 / double(size) : 1.0);
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels
