#include "on_gpu.h"

namespace lockstep::kernels {
namespace {

template <typename T>
using GpuDropout = TypedGpuTest<T>;
TYPED_TEST_SUITE(GpuDropout, Floating);

TYPED_TEST(GpuDropout, DrawsTheCpusMaskBitForBit) {
  using T = TypeParam;
  for (const double probability : {0.0, 0.1, 0.5, 0.999, 1.0}) {
    for (const std::size_t rows : {0u, 1u, 33u}) {
      for (const std::size_t cols : {0u, 1u, 3u, 4u, 31u, 33u, 256u, 1000u, 1029u, 5000u}) {
        for (const std::size_t margin : {0u, 1u, 4u}) {
          const DropoutMask mask{.probability = probability,
                                 .seed = 0x123456789abcdefu,
                                 .step = 5'000'000'000u,
                                 .layer = 7,
                                 .first_row = 0xfffffff0u};  // the row number crosses 32 bits
          auto x = random_grid<T>(rows, cols, margin, 2);
          Grid<T> expected(rows, cols, 3);
          cpu().dropout(cpu_stream(), mask, x.view(), expected.view());
          GridOnGpu<T> x1(x), y(Grid<T>(rows, cols, 3));
          gpu().dropout(gpu_stream(), mask, x1.view(), y.view());
          ASSERT_EQ(y.grid().values, expected.values) << rows << " x " << cols;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels
