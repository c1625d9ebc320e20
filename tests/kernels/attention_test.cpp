// Attention in blocks, and the softmax of the plain way, beside their definitions in double.
#include "kernels/matmul_precision.h"
#include "reference.h"

namespace lockstep::kernels {
namespace {

template <typename T>
class Attention : public ::testing::Test {};
TYPED_TEST_SUITE(Attention, Floating);

// Lengths around the blocks of both backends, heads of odd sizes.
constexpr AttentionShape kShapes[] = {{1, 1, 1, 1},   {2, 5, 3, 4},    {1, 31, 2, 16},
                                      {1, 33, 1, 17}, {2, 64, 2, 32},  {1, 65, 1, 20},
                                      {1, 130, 2, 8}, {1, 40, 1, 128}, {0, 4, 2, 8}};

struct AttentionResults {
  std::vector<double> y, log_sums, grad_qkv;
};

// With the scores of one query at a time.
template <typename T>
AttentionResults expected(const AttentionShape& s, const std::vector<T>& qkv,
                          const std::vector<T>& grad_y) {
  const std::size_t c = s.channels();
  const double scale = 1 / std::sqrt(double(s.head_size));
  AttentionResults e{std::vector<double>(grad_y.size()), {}, std::vector<double>(qkv.size())};
  for (std::size_t b = 0; b < s.batch; ++b) {
    for (std::size_t h = 0; h < s.heads; ++h) {
      const auto row = [&](std::size_t part, std::size_t t) {
        return (b * s.length + t) * 3 * c + part * c + h * s.head_size;
      };
      for (std::size_t i = 0; i < s.length; ++i) {
        const std::size_t at_y = (b * s.length + i) * c + h * s.head_size;
        std::vector<double> p(i + 1), grad_p(i + 1);
        double top = -kInfinity, sum = 0, projection = 0;
        for (std::size_t j = 0; j <= i; ++j) {
          for (std::size_t d = 0; d < s.head_size; ++d) {
            p[j] += scale * double(qkv[row(0, i) + d]) * double(qkv[row(1, j) + d]);
          }
          top = std::max(top, p[j]);
        }
        for (double& value : p) sum += value = std::exp(value - top);
        e.log_sums.push_back(top + std::log(sum));
        for (std::size_t j = 0; j <= i; ++j) {
          p[j] /= sum;
          for (std::size_t d = 0; d < s.head_size; ++d) {
            e.y[at_y + d] += p[j] * double(qkv[row(2, j) + d]);
            grad_p[j] += double(grad_y[at_y + d]) * double(qkv[row(2, j) + d]);
          }
          projection += p[j] * grad_p[j];
        }
        for (std::size_t j = 0; j <= i; ++j) {
          const double grad_s = scale * p[j] * (grad_p[j] - projection);
          for (std::size_t d = 0; d < s.head_size; ++d) {
            e.grad_qkv[row(0, i) + d] += grad_s * double(qkv[row(1, j) + d]);
            e.grad_qkv[row(1, j) + d] += grad_s * double(qkv[row(0, i) + d]);
            e.grad_qkv[row(2, j) + d] += p[j] * double(grad_y[at_y + d]);
          }
        }
      }
    }
  }
  return e;
}

TYPED_TEST(Attention, EqualsItsDefinition) {
  using T = TypeParam;
  for (const AttentionShape& s : kShapes) {
    SCOPED_TRACE(::testing::Message()
                 << s.batch << " x " << s.length << ", " << s.heads << " heads of " << s.head_size);
    const auto qkv = random_values<T>(s.batch * s.length * 3 * s.channels(), 1);
    const auto grad_y = random_values<T>(s.batch * s.length * s.channels(), 2);
    const AttentionResults e = expected(s, qkv, grad_y);
    const OnDevice<T> on_qkv(qkv), on_grad(grad_y);
    std::vector<T> first;
    for_thread_counts([&](Stream& stream) {
      // Memory that nobody has written may hold NaN.
      const OnDevice<T> y(grad_y.size(), T(kNaN)), log_sums(s.num_rows(), T(kNaN)),
          grad_qkv(qkv.size(), T(kNaN)), scratch(s.num_rows(), T(kNaN));
      tested().attention_forward(stream, {s, on_qkv.view(), y.view(), log_sums.view()});
      expect_close(y.values(), e.y, 4 * kTolerance<T>, 2);
      expect_close(log_sums.values(), e.log_sums, 4 * kTolerance<T>);
      tested().attention_backward(stream, {s, on_qkv.view(), y.view(), log_sums.view(),
                                           on_grad.view(), grad_qkv.view(), scratch.view()});
      expect_close(grad_qkv.values(), e.grad_qkv, 20 * kTolerance<T>, 10);
      auto bits = y.values();
      const auto more = grad_qkv.values();
      bits.insert(bits.end(), more.begin(), more.end());
      if (first.empty()) first = bits;
      EXPECT_EQ(bits, first);  // whatever the number of threads
    });
  }
}

TEST(AttentionInBfloat16, RoundsItsInputs) {
  const AttentionShape s{1, 33, 2, 16};
  const auto qkv = random_values<float>(s.length * 3 * s.channels(), 1);
  const auto grad_y = random_values<float>(s.length * s.channels(), 2);
  const AttentionResults e = expected(s, qkv, grad_y);
  const OnDevice<float> on_qkv(qkv), on_grad(grad_y), y(grad_y.size()), log_sums(s.num_rows()),
      grad_qkv(qkv.size()), scratch(s.num_rows());
  set_matmul_precision(MatmulPrecision::bf16);
  tested().attention_forward(stream(), {s, on_qkv.view(), y.view(), log_sums.view()});
  tested().attention_backward(stream(), {s, on_qkv.view(), y.view(), log_sums.view(),
                                         on_grad.view(), grad_qkv.view(), scratch.view()});
  set_matmul_precision(MatmulPrecision::highest);
  expect_close(y.values(), e.y, 1e-2);
  expect_close(grad_qkv.values(), e.grad_qkv, 1e-2, 2);
  double largest = 0;
  for (std::size_t i = 0; i < e.y.size(); ++i) {
    largest = std::max(largest, std::abs(double(y.values()[i]) - e.y[i]));
  }
  EXPECT_GT(largest, 1e-4);
}

TYPED_TEST(Attention, LargeScoresDoNotOverflow) {
  using T = TypeParam;
  const AttentionShape s{1, 70, 1, 4};
  auto qkv = random_values<T>(s.length * 12, 1);
  for (std::size_t i = 0; i < qkv.size(); ++i) {
    if (i % 12 < 8) qkv[i] *= T(30);
  }
  const std::vector<T> none(s.length * 4);
  const OnDevice<T> on_qkv(qkv), y(none.size()), log_sums(s.num_rows());
  tested().attention_forward(stream(), {s, on_qkv.view(), y.view(), log_sums.view()});
  expect_close(y.values(), expected(s, qkv, none).y, 2000 * kTolerance<T>);
}

TYPED_TEST(Attention, CausalSoftmaxEqualsItsDefinition) {
  using T = TypeParam;
  for (const std::size_t length : {1u, 5u, 33u, 70u}) {
    const std::size_t batch = 3;
    const double scale = 0.7;
    const auto scores = random_values<T>(batch * length * length, 1);
    const auto grad_p = random_values<T>(scores.size(), 2);
    std::vector<double> p(scores.size()), grad(scores.size());
    for (std::size_t row = 0; row < batch * length; ++row) {
      const std::size_t at = row * length, seen = row % length + 1;
      double sum = 0, projection = 0;
      for (std::size_t j = 0; j < seen; ++j) sum += std::exp(scale * double(scores[at + j]));
      for (std::size_t j = 0; j < seen; ++j) {
        p[at + j] = std::exp(scale * double(scores[at + j])) / sum;
        projection += p[at + j] * double(grad_p[at + j]);
      }
      for (std::size_t j = 0; j < seen; ++j) {
        grad[at + j] = scale * p[at + j] * (double(grad_p[at + j]) - projection);
      }
    }
    const auto view = [&](const OnDevice<T>& memory) {
      return MatrixView{memory.data(), dtype_of<T>, length, length, length, batch, length * length};
    };
    for_thread_counts([&](Stream& stream) {
      const OnDevice<T> on_scores(scores), on_grad(grad_p);
      tested().causal_softmax_forward(stream, {view(on_scores), scale, view(on_scores)});
      expect_close(on_scores.values(), p);
      tested().causal_softmax_backward(stream,
                                       {view(on_scores), view(on_grad), scale, view(on_grad)});
      expect_close(on_grad.values(), grad, 2 * kTolerance<T>);
    });
  }
}

}  // namespace
}  // namespace lockstep::kernels
