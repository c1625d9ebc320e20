// Patches and convolutions beside loops that follow their definitions.
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
std::vector<T> images(const Windows& w, std::uint64_t seed) {
  return random_values<T>(w.images * w.image_elements(), seed);
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
    const auto x = images<T>(w, 1);
    std::vector<T> expected;
    for (std::size_t i = 0; i < w.rows(); ++i) {
      for (std::size_t j = 0; j < w.cols(); ++j) {
        const std::ptrdiff_t at = source_of(w, i, j);
        expected.push_back(at < 0 ? T(0) : x[std::size_t(at)]);
      }
    }
    for_thread_counts([&](Stream& stream) {
      const OnDevice<T> on_x(x);
      const GridOnDevice<T> patches(w.rows(), w.cols(), 2);
      tested().patches(stream, {w, on_x.view(), patches.view()});
      EXPECT_EQ(patches.content(), expected);
    });
  });
}

TYPED_TEST(Conv, FoldingAddsUpAllCopiesOfAnElement) {
  using T = TypeParam;
  for_windows([](const Windows& w) {
    const auto patches = random_grid<T>(w.rows(), w.cols(), 3, 2);
    std::vector<double> expected(w.images * w.image_elements());
    for (std::size_t i = 0; i < w.rows(); ++i) {
      for (std::size_t j = 0; j < w.cols(); ++j) {
        const std::ptrdiff_t at = source_of(w, i, j);
        if (at >= 0) expected[std::size_t(at)] += double(patches(i, j));
      }
    }
    for_thread_counts([&](Stream& stream) {
      const GridOnDevice<T> on_patches(patches);
      const OnDevice<T> x(expected.size(), T(5));
      tested().fold_patches(stream, {w, on_patches.view(), x.view()});
      expect_close(x.values(), expected, kTolerance<T>, 10);
    });
  });
}

// Results of both passes, by conv_forward and conv_backward or by a linear layer over patches.
template <typename T>
struct Passes {
  Passes(Stream& stream, const Windows& w, Activation activation, bool by_patches) {
    const OnDevice<T> x(images<T>(w, 1)), bias(random_values<T>(kOut, 3));
    const GridOnDevice<T> weight(random_grid<T>(kOut, w.cols(), 0, 2)),
        grad_z(random_grid<T>(w.rows(), kOut, 0, 4)), to_y(w.rows(), kOut),
        to_weight(kOut, w.cols());
    const OnDevice<T> to_x(w.images * w.image_elements()), to_bias(kOut);
    if (by_patches) {
      const GridOnDevice<T> rows(w.rows(), w.cols()), grad_rows(w.rows(), w.cols());
      tested().patches(stream, {w, x.view(), rows.view()});
      tested().linear_forward(
          stream, {rows.view(), weight.view(), bias.view(), activation, to_y.view(), {}});
      tested().linear_backward(stream, {rows.view(), weight.view(), grad_z.view(), grad_rows.view(),
                                        to_weight.view(), to_bias.view()});
      tested().fold_patches(stream, {w, grad_rows.view(), to_x.view()});
    } else {
      const OnDevice<T> scratch(tested().conv_scratch(w));
      tested().conv_forward(
          stream,
          {w, x.view(), weight.view(), bias.view(), activation, to_y.view(), {}, scratch.view()});
      tested().conv_backward(stream, {w, x.view(), weight.view(), grad_z.view(), to_x.view(),
                                      to_weight.view(), to_bias.view(), scratch.view()});
    }
    y = to_y.content();
    grad_x = to_x.values();
    grad_weight = to_weight.content();
    grad_bias = to_bias.values();
  }
  std::vector<T> y, grad_x, grad_weight, grad_bias;
};

template <typename T>
void expect_linear_over_patches(const Windows& w, Activation activation) {
  const Passes<T> plain(stream(), w, activation, true);
  for_thread_counts([&](Stream& stream) {
    const Passes<T> found(stream, w, activation, false);
    const auto compare = [&](const std::vector<T> Passes<T>::*part, std::size_t num_terms) {
      if (test_device_type() == DeviceType::cpu) {
        EXPECT_EQ(found.*part, plain.*part);
        return;
      }
      // A GPU's library adds a slice of the batch in another order.
      const std::vector<double> expected((plain.*part).begin(), (plain.*part).end());
      expect_close(found.*part, expected, 50 * kTolerance<T>, 10 + std::sqrt(double(num_terms)));
    };
    compare(&Passes<T>::y, w.cols());
    compare(&Passes<T>::grad_x, w.cols());
    compare(&Passes<T>::grad_weight, w.rows());
    compare(&Passes<T>::grad_bias, w.rows());
  });
}

TYPED_TEST(Conv, IsALinearLayerOverPatches) {
  for_windows([](const Windows& w) {
    expect_linear_over_patches<TypeParam>(w, Activation::none);
    expect_linear_over_patches<TypeParam>(w, Activation::relu);
  });
  // An inner size of several blocks of the CPU.
  expect_linear_over_patches<TypeParam>({2, 9, 9, 100, 3, 3, 1, 1}, Activation::none);
}

TEST(ConvSlices, GiveWhatTheWholeBatchGives) {
  if (test_device_type() == DeviceType::cpu) GTEST_SKIP() << "a CPU needs no slices";
  const Windows w{21, 64, 64, 23, 3, 3, 1, 1};
  ASSERT_LT(tested().conv_scratch(w), w.rows() * w.cols());
  expect_linear_over_patches<float>(w, Activation::relu);
}

}  // namespace
}  // namespace lockstep::kernels
