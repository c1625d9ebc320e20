// Pooling and transposition beside loops that follow their definitions.
#include "reference.h"
#include "tests/kernels/windows_cases.h"

namespace lockstep::kernels {
namespace {

template <typename T>
class Pool : public ::testing::Test {};
TYPED_TEST_SUITE(Pool, Floating);

// Calls body(out, place, in) for every pixel of every window: elements of y and x.
template <typename Body>
void for_pixels(const Windows& w, const Body& body) {
  std::size_t out = 0;
  for (std::size_t n = 0; n < w.images; ++n) {
    for (std::size_t oy = 0; oy < w.out_height(); ++oy) {
      for (std::size_t ox = 0; ox < w.out_width(); ++ox) {
        for (std::size_t c = 0; c < w.channels; ++c, ++out) {
          for (std::size_t ky = 0; ky < w.kernel_height; ++ky) {
            for (std::size_t kx = 0; kx < w.kernel_width; ++kx) {
              const std::size_t y = oy * w.stride + ky - w.padding;
              const std::size_t x = ox * w.stride + kx - w.padding;
              if (y >= w.height || x >= w.width) continue;
              body(out, ky * w.kernel_width + kx,
                   ((n * w.height + y) * w.width + x) * w.channels + c);
            }
          }
        }
      }
    }
  }
}

// Every window has a pixel of the image.
bool fits_a_pooling(const Windows& w) {
  return w.padding <= std::min(w.kernel_height, w.kernel_width) / 2;
}

TYPED_TEST(Pool, AverageAndItsGradientEqualTheDefinition) {
  using T = TypeParam;
  for (const Windows& w : kWindows) {
    const auto x = random_values<T>(w.images * w.image_elements(), 1);
    const auto grad_y = random_values<T>(w.rows() * w.channels, 2);
    const OnDevice<T> on_x(x), on_grad(grad_y);
    const double size = double(w.kernel_height * w.kernel_width);
    std::vector<double> y(grad_y.size()), grad_x(x.size());
    for_pixels(w, [&](std::size_t out, std::size_t, std::size_t in) {
      y[out] += double(x[in]) / size;
      grad_x[in] += double(grad_y[out]) / size;
    });
    for_thread_counts([&](Stream& stream) {
      const OnDevice<T> found(y.size(), T(9)), found_grad(x.size(), T(9));
      tested().pool_forward(stream, {w, Pooling::average, on_x.view(), found.view(), {}});
      tested().pool_backward(stream, {w, Pooling::average, {}, on_grad.view(), found_grad.view()});
      expect_close(found.values(), y);
      expect_close(found_grad.values(), grad_x, kTolerance<T>, 4);
    });
  }
}

TYPED_TEST(Pool, MaximumAndItsGradientEqualTheDefinition) {
  using T = TypeParam;
  for (const Windows& w : kWindows) {
    if (!fits_a_pooling(w)) continue;
    auto x = random_values<T>(w.images * w.image_elements(), 1);
    for (std::size_t i = 0; i < x.size(); i += 3) x[i] = T(2);  // several largest: the first wins
    const auto grad_y = random_values<T>(w.rows() * w.channels, 2);
    const OnDevice<T> on_x(x), on_grad(grad_y);
    std::vector<double> y(grad_y.size(), -kInfinity), grad_x(x.size());
    std::vector<std::int32_t> winners(y.size());
    std::vector<std::size_t> sources(y.size());
    for_pixels(w, [&](std::size_t out, std::size_t place, std::size_t in) {
      if (!(double(x[in]) > y[out])) return;
      y[out] = double(x[in]);
      winners[out] = std::int32_t(place);
      sources[out] = in;
    });
    for (std::size_t i = 0; i < y.size(); ++i) grad_x[sources[i]] += double(grad_y[i]);
    for_thread_counts([&](Stream& stream) {
      const OnDevice<T> found(y.size()), found_grad(x.size(), T(9));
      const OnDevice<std::int32_t> found_winners(y.size());
      tested().pool_forward(stream,
                            {w, Pooling::maximum, on_x.view(), found.view(), found_winners.view()});
      tested().pool_backward(
          stream, {w, Pooling::maximum, found_winners.view(), on_grad.view(), found_grad.view()});
      EXPECT_EQ(found_winners.values(), winners);
      expect_close(found.values(), y);
      expect_close(found_grad.values(), grad_x, kTolerance<T>, 4);
    });
  }
}

TYPED_TEST(Pool, ANaNIsTheLargest) {
  using T = TypeParam;
  const Windows w{1, 2, 2, 1, 2, 2, 1, 0};
  const OnDevice<T> x(std::vector<T>{1, T(kNaN), 7, 2}), y(1);
  const OnDevice<std::int32_t> winners(1);
  tested().pool_forward(stream(), {w, Pooling::maximum, x.view(), y.view(), winners.view()});
  EXPECT_TRUE(std::isnan(y.value()));
  EXPECT_EQ(winners.value(), 1);
}

TYPED_TEST(Pool, TransposeSwapsRowsAndColumns) {
  using T = TypeParam;
  const std::size_t batch = 5, rows = 33, cols = 7;
  const auto x = random_values<T>(batch * rows * cols, 1);
  std::vector<T> expected;
  for (std::size_t b = 0; b < batch; ++b) {
    for (std::size_t j = 0; j < cols; ++j) {
      for (std::size_t i = 0; i < rows; ++i) {
        expected.push_back(x[(b * rows + i) * cols + j]);
      }
    }
  }
  for_thread_counts([&](Stream& stream) {
    const OnDevice<T> on_x(x), y(x.size());
    const ConstMatrixView matrix{on_x.data(), dtype_of<T>, rows, cols, cols, batch, rows * cols};
    tested().transpose(stream, {matrix, y.view()});
    EXPECT_EQ(y.values(), expected);
  });
}

}  // namespace
}  // namespace lockstep::kernels
