// Tensors of more than 2^31 bytes and, of bytes, more than 2^31 elements.
#include "on_gpu.h"

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
};

// Memory that is given back at the end, uninitialised.
struct Block {
  explicit Block(std::size_t num_bytes) : block(gpu_device().memory().allocate(num_bytes)) {}
  ~Block() {
    gpu_device().memory().release(block, {gpu_stream().record()});
    gpu_stream().synchronize();
    gpu_device().memory().release_cached();
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  runtime::MemoryPool::Block block;
};

std::uint8_t byte_at(const void* data, std::size_t at) {
  std::uint8_t value = 0;
  runtime::copy_between({runtime::logical_device({DeviceType::cpu, 0}), &value},
                        {gpu_device(), static_cast<const std::uint8_t*>(data) + at}, 1);
  return value;
}

TEST_F(GpuLarge, FillAndCopyReachTheLastOfMoreThanTwoToThe31Bytes) {
  Block from(kElements), to(kElements);
  const TensorView source{from.block.data, DType::uint8, kElements};
  const TensorView target{to.block.data, DType::uint8, kElements};
  gpu().fill(gpu_stream(), target, 1);
  gpu().fill(gpu_stream(), source, 7);
  gpu().copy(gpu_stream(), source, target);
  for (const std::size_t at : {std::size_t{0}, kElements / 2, kElements - 8, kElements - 1}) {
    EXPECT_EQ(byte_at(target.data, at), 7);
  }
}

TEST_F(GpuLarge, SumsAndGathersBeyondTwoToThe31Bytes) {
  // 2.1 million rows of 256 floats: 2^31 bytes and a little.
  constexpr std::size_t kCols = 256;
  constexpr std::size_t kRows = (std::size_t{1} << 21) + 3;
  Block memory(kRows * kCols * sizeof(float));
  const MatrixView x = matrix_view(memory.block.data, DType::float32, kRows, kCols);
  const TensorView all{x.data, DType::float32, kRows * kCols};
  gpu().fill(gpu_stream(), all, 0.5);
  OnGpu<float> total(1), sums(kCols);
  gpu().sum(gpu_stream(), all, total.view());
  EXPECT_EQ(total.values()[0], static_cast<float>(kRows * kCols * 0.5));
  sum_columns(gpu(), gpu_stream(), x, sums.view());
  EXPECT_EQ(sums.values(), std::vector<float>(kCols, static_cast<float>(kRows * 0.5)));
  const std::int64_t last = kRows - 1;
  gpu().fill(gpu_stream(), {static_cast<float*>(x.data) + last * kCols, DType::float32, kCols}, 3);
  OnGpu<std::int64_t> indices(std::vector<std::int64_t>{last, last - 1});
  GridOnGpu<float> rows(Grid<float>(2, kCols));
  gpu().gather_rows(gpu_stream(), x, indices.view(), rows.view(), 2);
  EXPECT_EQ(rows.grid()(0, kCols - 1), 6);
  EXPECT_EQ(rows.grid()(1, kCols - 1), 1);
}

}  // namespace
}  // namespace lockstep::kernels
