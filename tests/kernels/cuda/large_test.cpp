// Tensors of more than 2^31 bytes and, of bytes, more than 2^31 elements.
#include "engine/runtime/cuda_device.h"
#include "engine/runtime/physical_gpus.h"
#include "gpu_test.h"

namespace lockstep::kernels {
namespace {

constexpr std::size_t kElements = (std::size_t{1} << 31) + 7;

class GpuLarge : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    const std::size_t needed = 3 * kElements;
    if (runtime::physical_gpus()[0].memory_bytes < needed) {
      GTEST_SKIP() << "needs " << needed << " bytes of GPU memory";
    }
  }
  void TearDown() override {
    if (!IsSkipped()) runtime::logical_device(test_device()).memory().release_cached();
  }
};

TEST_F(GpuLarge, FillAndCopyReachTheLastByte) {
  const auto from = Tensor::empty({kElements}, DType::uint8, test_device());
  const auto to = Tensor::empty({kElements}, DType::uint8, test_device());
  tested().fill(stream(), {to.view(), 1});
  tested().fill(stream(), {from.view(), 7});
  tested().copy(stream(), {from.view(), to.view()});
  for (const std::size_t at : {std::size_t{0}, kElements / 2, kElements - 8, kElements - 1}) {
    EXPECT_EQ(to.rows(at, at + 1).to_vector<std::uint8_t>()[0], 7);
  }
}

TEST_F(GpuLarge, SumsAndGathersBeyondTwoToThe31Bytes) {
  // 2.1 million rows of 256 floats: 2^31 bytes and a little.
  constexpr std::size_t kCols = 256;
  constexpr std::size_t kRows = (std::size_t{1} << 21) + 3;
  const auto memory = Tensor::empty({kRows * kCols}, DType::float32, test_device());
  const MatrixView x = matrix_view(memory.view().data, DType::float32, kRows, kCols);
  tested().fill(stream(), {memory.view(), 0.5});
  const OnDevice<float> total(1), sums(kCols);
  tested().sum(stream(), {memory.view(), total.view()});
  EXPECT_EQ(total.value(), static_cast<float>(kRows * kCols * 0.5));
  sum_columns(stream(), x, sums.view());
  EXPECT_EQ(sums.values(), std::vector<float>(kCols, static_cast<float>(kRows * 0.5)));
  tested().fill(stream(), {memory.rows((kRows - 1) * kCols, kRows * kCols).view(), 3});
  const OnDevice<std::int64_t> indices(std::vector<std::int64_t>{kRows - 1, kRows - 2});
  const GridOnDevice<float> rows(2, kCols);
  tested().gather_rows(stream(), {x, indices.view(), rows.view(), 2});
  EXPECT_EQ(rows.grid()(0, kCols - 1), 6);
  EXPECT_EQ(rows.grid()(1, kCols - 1), 1);
}

}  // namespace
}  // namespace lockstep::kernels
