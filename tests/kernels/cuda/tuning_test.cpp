// How the algorithms of products are chosen and remembered.
#include <thread>

#include "engine/runtime/logical_device.h"
#include "gpu_products.h"
#include "kernels/cuda/product.h"
#include "kernels/matmul_precision.h"

namespace lockstep::kernels::cuda {
namespace {

class CudaTuning : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    forget_products();
  }
  void TearDown() override {
    forget_products();
    set_matmul_precision(MatmulPrecision::highest);
  }
};

// c = a * b on device memory, for a stream of choice.
class SomeProduct {
 public:
  SomeProduct(std::size_t rows, std::size_t cols, std::size_t depth, std::size_t offset = 0)
      : a_(random_grid<float>(rows, depth, 0, 1), offset),
        b_(random_grid<float>(depth, cols, 0, 2)),
        c_(Grid<float>(rows, cols)) {}
  void run(Stream& stream, Write write = Write::overwrite) const {
    gpu().matmul(stream, a_.view(), Transpose::no, b_.view(), Transpose::no, c_.view(), write);
  }
  std::vector<float> result() const { return c_.grid().values; }

 private:
  GridOnGpu<float> a_, b_, c_;
};

Stream& compute() {
  return gpu_stream();
}

TEST_F(CudaTuning, LeavesWhatIsThereAloneWhileItTimes) {
  const SomeProduct product(20, 12, 8);
  product.run(compute());
  const auto once = product.result();
  product.run(compute(), Write::accumulate);  // timed now, and added once
  const auto twice = product.result();
  // Another algorithm may be the fastest when adding, and sums in another order.
  for (std::size_t i = 0; i < once.size(); ++i) EXPECT_NEAR(twice[i], 2 * once[i], 1e-4);
}

TEST_F(CudaTuning, ThreadsThatMeetTheSameProductTimeItOnce) {
  runtime::LogicalDevice& device = gpu_device();
  const std::vector<SomeProduct*> products{new SomeProduct(24, 12, 8), new SomeProduct(24, 12, 8),
                                           new SomeProduct(24, 12, 8)};
  device.compute_stream().synchronize();
  std::vector<std::thread> threads;
  for (SomeProduct* product : products) {
    threads.emplace_back([&, product] { product->run(device.compute_stream()); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_timed_products(), 1u);
  for (SomeProduct* product : products) {
    EXPECT_EQ(product->result(), products[0]->result());
  }
  for (SomeProduct* product : products) delete product;
}

}  // namespace
}  // namespace lockstep::kernels::cuda
