#include "reference.h"

namespace lockstep::kernels {
namespace {

template <typename T>
class Dropout : public ::testing::Test {};
TYPED_TEST_SUITE(Dropout, Floating);

// The mask as kernels/cpu/dropout.cpp documents it, by core's Philox.
bool is_dropped(const DropoutMask& mask, std::uint64_t row, std::size_t col) {
  const auto low = [](std::uint64_t value) { return std::uint32_t(value); };
  const auto high = [](std::uint64_t value) { return std::uint32_t(value >> 32); };
  const auto start = philox({low(mask.step), high(mask.step), 0x64726f70u, 0}, mask.seed);
  const std::uint64_t key = std::uint64_t{start[1]} << 32 | start[0];
  const auto words = philox({low(row), high(row), std::uint32_t(col / 4), mask.layer}, key);
  return double(words[col % 4]) < std::floor(mask.probability * 0x1p32);
}

TYPED_TEST(Dropout, DrawsTheDocumentedMask) {
  using T = TypeParam;
  for (const std::size_t cols : {0u, 1u, 3u, 31u, 33u, 130u, 1029u}) {
    for (const std::size_t margin : {0u, 1u, 4u}) {
      const DropoutMask mask{.probability = 0.3,
                             .seed = 0x123456789abcdefu,
                             .step = 5'000'000'000u,
                             .layer = 7,
                             .first_row = 0xfffffffeu};  // the row number crosses 32 bits
      const auto x = random_grid<T>(40, cols, margin, 2);
      std::vector<T> expected;
      for (std::size_t i = 0; i < 40; ++i) {
        for (std::size_t j = 0; j < cols; ++j) {
          const bool dropped = is_dropped(mask, mask.first_row + i, j);
          expected.push_back(x(i, j) * (dropped ? T(0) : static_cast<T>(1 / (1 - 0.3))));
        }
      }
      for_thread_counts([&](Stream& stream) {
        const GridOnDevice<T> on_x(x), y(40, cols, 3);
        tested().dropout(stream, {mask, on_x.view(), y.view()});
        ASSERT_EQ(y.content(), expected) << cols;
      });
    }
  }
}

TYPED_TEST(Dropout, ProbabilityZeroKeepsAllAndOneDropsAll) {
  using T = TypeParam;
  const auto values = random_grid<T>(9, 31, 0, 1);
  const GridOnDevice<T> x(values), y(9, 31);
  tested().dropout(stream(), {{.probability = 0}, x.view(), y.view()});
  EXPECT_EQ(y.content(), values.values);
  tested().dropout(stream(), {{.probability = 0}, x.view(), x.view()});  // in place
  EXPECT_EQ(x.content(), values.values);
  tested().dropout(stream(), {{.probability = 1}, x.view(), y.view()});
  for (const T value : y.content()) EXPECT_EQ(value, T(0));
}

}  // namespace
}  // namespace lockstep::kernels
