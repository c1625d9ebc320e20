// Attention in tiles, and the softmax of the plain way, beside their definitions in double.
#include <optional>

#include "kernels/matmul_precision.h"
#include "reference.h"

namespace lockstep::kernels {
namespace {

::testing::Message text_of(const AttentionShape& s) {
  return ::testing::Message() << s.batch << " x " << s.length << ", " << s.heads << " heads of "
                              << s.head_size;
}

template <typename T>
class Attention : public ::testing::Test {};
TYPED_TEST_SUITE(Attention, Floating);

// Lengths around the tiles of both backends, heads of odd sizes.
constexpr AttentionShape kShapes[] = {
    {1, 1, 1, 1},    {2, 5, 3, 4},    {1, 31, 2, 16},  {1, 33, 1, 17},  {2, 64, 2, 32},
    {1, 65, 1, 20},  {1, 130, 2, 8},  {1, 40, 1, 128}, {1, 129, 2, 33}, {1, 100, 1, 127},
    {1, 300, 1, 64}, {1, 90, 1, 128}, {1, 16, 2, 65},  {1, 257, 1, 1},  {0, 4, 2, 8}};

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

// Its results on the device under test. skew: elements by which memory misses its alignment.
template <typename T>
struct Computed {
  std::vector<T> y, log_sums, grad_qkv;
  friend bool operator==(const Computed&, const Computed&) = default;
};
template <typename T>
Computed<T> compute(Stream& stream, const AttentionShape& s, const std::vector<T>& qkv,
                    const std::vector<T>& grad_y, std::size_t skew = 0) {
  const OnDevice<T> on_qkv(qkv, skew), on_grad(grad_y, skew);
  // Memory that nobody has written may hold NaN.
  const auto unwritten = [](std::size_t size) { return OnDevice<T>(size, T(kNaN)); };
  const OnDevice<T> y = unwritten(grad_y.size()), log_sums = unwritten(s.num_rows()),
                    grad_qkv = unwritten(qkv.size()), scratch = unwritten(s.num_rows());
  tested().attention_forward(stream, {s, on_qkv.view(), y.view(), log_sums.view()});
  tested().attention_backward(stream, {s, on_qkv.view(), y.view(), log_sums.view(), on_grad.view(),
                                       grad_qkv.view(), scratch.view()});
  return {y.values(), log_sums.values(), grad_qkv.values()};
}

TYPED_TEST(Attention, EqualsItsDefinition) {
  using T = TypeParam;
  for (const AttentionShape& s : kShapes) {
    SCOPED_TRACE(text_of(s));
    const auto qkv = random_values<T>(s.batch * s.length * 3 * s.channels(), 1);
    const auto grad_y = random_values<T>(s.batch * s.length * s.channels(), 2);
    const AttentionResults e = expected(s, qkv, grad_y);
    std::optional<Computed<T>> first;
    for_thread_counts([&](Stream& stream) {
      const Computed<T> found = compute(stream, s, qkv, grad_y);
      expect_close(found.y, e.y, 4 * kTolerance<T>, 2);
      expect_close(found.log_sums, e.log_sums, 4 * kTolerance<T>);
      expect_close(found.grad_qkv, e.grad_qkv, 20 * kTolerance<T>, 10);
      if (!first) first = found;
      EXPECT_TRUE(found == *first) << "other bits with another number of threads";
      EXPECT_TRUE(compute(stream, s, qkv, grad_y) == found) << "other bits in another run";
    });
  }
}

TYPED_TEST(Attention, MemoryThatIsNotAlignedGivesTheSameBits) {
  using T = TypeParam;
  const AttentionShape s{2, 40, 2, 8};
  const auto qkv = random_values<T>(s.batch * s.length * 3 * s.channels(), 1);
  const auto grad_y = random_values<T>(s.batch * s.length * s.channels(), 2);
  EXPECT_TRUE(compute(stream(), s, qkv, grad_y, 1) == compute(stream(), s, qkv, grad_y));
}

// unit: the largest relative error of rounding a factor. Each element of y is an average of values
// below 2, whose weights and values are rounded; a gradient has two more products.
void expect_factors_of(MatmulPrecision precision, double unit) {
  const AttentionShape shapes[] = {
      {1, 33, 2, 16}, {1, 129, 2, 33}, {1, 100, 1, 64}, {1, 70, 1, 128}};
  for (const AttentionShape& s : shapes) {
    SCOPED_TRACE(text_of(s) << ", " << to_string(precision));
    const auto qkv = random_values<float>(s.batch * s.length * 3 * s.channels(), 1);
    const auto grad_y = random_values<float>(s.batch * s.length * s.channels(), 2);
    const AttentionResults e = expected(s, qkv, grad_y);
    set_matmul_precision(precision);
    const Computed<float> found = compute(stream(), s, qkv, grad_y);
    const Computed<float> again = compute(stream(), s, qkv, grad_y);
    set_matmul_precision(MatmulPrecision::highest);
    EXPECT_TRUE(found == again) << "other bits in another run";
    expect_close(found.y, e.y, 4 * unit);
    expect_close(found.log_sums, e.log_sums, 4 * unit);
    expect_close(found.grad_qkv, e.grad_qkv, 8 * unit);
    const bool imitates = precision == MatmulPrecision::bf16;  // the CPU
    if (test_device_type() != DeviceType::cuda && !imitates) continue;
    double largest = 0;
    for (std::size_t i = 0; i < e.y.size(); ++i) {
      largest = std::max(largest, std::abs(double(found.y[i]) - e.y[i]));
    }
    EXPECT_GT(largest, unit / 8) << "its factors are not rounded";
  }
}
TEST(AttentionPrecision, Tf32RoundsFactorsTo10Bits) {
  expect_factors_of(MatmulPrecision::high, 0x1p-11);
}
TEST(AttentionPrecision, Bfloat16RoundsFactorsTo7Bits) {
  expect_factors_of(MatmulPrecision::medium, 0x1p-8);
  expect_factors_of(MatmulPrecision::bf16, 0x1p-8);
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
