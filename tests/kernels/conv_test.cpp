// Patches and convolutions of the CPU backend beside loops that follow their definitions.
#include "reference.h"
#include "tests/kernels/windows_cases.h"

namespace lockstep::kernels {
namespace {

template <typename T>
class Conv : public ::testing::Test {};
TYPED_TEST_SUITE(Conv, Floating);

constexpr std::size_t kOut = 7;

// The place in x of column `column` of row `row` of the patches; -1 in the padding.
std::ptrdiff_t source_of(const Windows& w, std::size_t row, std::size_t column) {
  const std::size_t image = row / w.rows_per_image(), window = row % w.rows_per_image();
  const std::size_t pixel = column / w.channels, channel = column % w.channels;
  const auto y = std::ptrdiff_t(window / w.out_width() * w.stride + pixel / w.kernel_width) -
                 std::ptrdiff_t(w.padding);
  const auto x = std::ptrdiff_t(window % w.out_width() * w.stride + pixel % w.kernel_width) -
                 std::ptrdiff_t(w.padding);
  if (y < 0 || x < 0 || y >= std::ptrdiff_t(w.height) || x >= std::ptrdiff_t(w.width)) return -1;
  return std::ptrdiff_t(
      ((image * w.height + std::size_t(y)) * w.width + std::size_t(x)) * w.channels + channel);
}

template <typename T>
Array<T> images(const Windows& w, std::uint64_t seed) {
  return random_array<T>(w.images * w.image_elements(), seed);
}

template <typename Body>
void for_windows(const Body& body) {
  for (const Windows& w : kWindows) {
    SCOPED_TRACE(::testing::Message()
                 << w.images << " x " << w.height << " x " << w.width << " x " << w.channels
                 << ", kernel " << w.kernel_height << " x " << w.kernel_width << ", stride "
                 << w.stride << ", padding " << w.padding);
    body(w);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TYPED_TEST(Conv, PatchesAreTheWindowsPixels) {
  using T = TypeParam;
  for_windows([](const Windows& w) {
    auto x = images<T>(w, 1);
    Grid<T> expected(w.rows(), w.cols());
    for (std::size_t i = 0; i < w.rows(); ++i) {
      for (std::size_t j = 0; j < w.cols(); ++j) {
        const std::ptrdiff_t at = source_of(w, i, j);
        expected(i, j) = at < 0 ? T(0) : x.values[std::size_t(at)];
      }
    }
    for_thread_counts([&](Stream& stream) {
      Grid<T> patches(w.rows(), w.cols(), 2);
      cpu().patches(stream, w, x.view(), patches.view());
      EXPECT_EQ(patches.content(), expected.content());
      EXPECT_TRUE(patches.margin_is_untouched());
    });
  });
}

TYPED_TEST(Conv, FoldingAddsUpAllCopiesOfAnElement) {
  using T = TypeParam;
  for_windows([](const Windows& w) {
    auto patches = random_grid<T>(w.rows(), w.cols(), 3, 2);
    std::vector<double> expected(w.images * w.image_elements());
    for (std::size_t i = 0; i < w.rows(); ++i) {
      for (std::size_t j = 0; j < w.cols(); ++j) {
        const std::ptrdiff_t at = source_of(w, i, j);
        if (at >= 0) expected[std::size_t(at)] += double(patches(i, j));
      }
    }
    for_thread_counts([&](Stream& stream) {
      Array<T> x(expected.size(), T(5));
      cpu().fold_patches(stream, w, patches.view(), x.view());
      expect_close(x.values, expected, kTolerance<T>, 10);
    });
  });
}

// Results of both passes: y, grad_x, grad_weight, grad_bias.
template <typename T>
struct Passes {
  std::vector<T> y, grad_x, grad_weight, grad_bias;
  bool operator==(const Passes&) const = default;
};

template <typename T>
Passes<T> convolve(Stream& stream, const Windows& w, Activation activation) {
  auto x = images<T>(w, 1);
  auto weight = random_grid<T>(kOut, w.cols(), 0, 2);
  auto bias = random_array<T>(kOut, 3);
  auto grad_z = random_grid<T>(w.rows(), kOut, 0, 4);
  Grid<T> y(w.rows(), kOut), grad_weight(kOut, w.cols());
  Array<T> grad_x(x.size()), grad_bias(kOut);
  cpu().conv_forward(stream,
                     {w, x.view(), weight.view(), bias.view(), activation, y.view(), {}, {}});
  cpu().conv_backward(stream, {w,
                               x.view(),
                               weight.view(),
                               grad_z.view(),
                               grad_x.view(),
                               grad_weight.view(),
                               grad_bias.view(),
                               {}});
  return {y.content(), grad_x.values, grad_weight.content(), grad_bias.values};
}

// The plain version: patches, then a linear layer over them.
template <typename T>
Passes<T> convolve_patches(Stream& stream, const Windows& w, Activation activation) {
  auto x = images<T>(w, 1);
  auto weight = random_grid<T>(kOut, w.cols(), 0, 2);
  auto bias = random_array<T>(kOut, 3);
  auto grad_z = random_grid<T>(w.rows(), kOut, 0, 4);
  Grid<T> rows(w.rows(), w.cols()), grad_rows(w.rows(), w.cols());
  Grid<T> y(w.rows(), kOut), grad_weight(kOut, w.cols());
  Array<T> grad_x(x.size()), grad_bias(kOut);
  cpu().patches(stream, w, x.view(), rows.view());
  cpu().linear_forward(stream, rows.view(), weight.view(), bias.view(), activation, y.view(), {});
  cpu().linear_backward(stream, rows.view(), weight.view(), grad_z.view(), grad_rows.view(),
                        grad_weight.view(), grad_bias.view());
  cpu().fold_patches(stream, w, grad_rows.view(), grad_x.view());
  return {y.content(), grad_x.values, grad_weight.content(), grad_bias.values};
}

TYPED_TEST(Conv, HasTheBitsOfALinearLayerOverPatchesWithAnyThreads) {
  using T = TypeParam;
  for_windows([](const Windows& w) {
    for (const Activation activation : {Activation::none, Activation::relu}) {
      const Passes<T> plain = convolve_patches<T>(stream_with(1), w, activation);
      for_thread_counts([&](Stream& stream) {
        const Passes<T> found = convolve<T>(stream, w, activation);
        EXPECT_EQ(found.y, plain.y);
        EXPECT_EQ(found.grad_x, plain.grad_x);
        EXPECT_EQ(found.grad_weight, plain.grad_weight);
        EXPECT_EQ(found.grad_bias, plain.grad_bias);
      });
    }
  });
}

TYPED_TEST(Conv, AnInnerSizeOfSeveralBlocksHasTheSameBits) {
  using T = TypeParam;
  const Windows w{2, 9, 9, 100, 3, 3, 1, 1};
  const Passes<T> plain = convolve_patches<T>(stream_with(1), w, Activation::none);
  for_thread_counts(
      [&](Stream& stream) { EXPECT_EQ(convolve<T>(stream, w, Activation::none), plain); });
}

}  // namespace
}  // namespace lockstep::kernels
