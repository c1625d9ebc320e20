// Products as they are timed, and the precisions that only a GPU distinguishes.
#include <thread>

#include "gpu_test.h"
#include "kernels/cuda/product.h"
#include "kernels/matmul_precision.h"
#include "tests/kernels/layer_reference.h"

namespace lockstep::kernels::cuda {
namespace {

class CudaProducts : public GpuTest {
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

TEST_F(CudaProducts, TimingLeavesWhatIsThereAlone) {
  const SomeProduct product(20, 12, 8);
  product.run();
  EXPECT_LE(product.error(), 1e-5);
  const auto once = product.result();
  product.run(Write::accumulate);  // timed now, and added once
  const auto twice = product.result();
  // Another algorithm may be the fastest when adding, and sums in another order.
  for (std::size_t i = 0; i < once.size(); ++i) EXPECT_NEAR(twice[i], 2 * once[i], 1e-4);
}

TEST_F(CudaProducts, ThreadsTimeTheSameProductOnce) {
  const SomeProduct products[] = {{24, 12, 8}, {24, 12, 8}, {24, 12, 8}};
  stream().synchronize();
  std::vector<std::thread> threads;
  for (const SomeProduct& product : products) threads.emplace_back([&] { product.run(); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_timed_products(), 1u);
  for (const SomeProduct& product : products) EXPECT_EQ(product.result(), products[0].result());
}

TEST_F(CudaProducts, EachWordOfPrecisionKeepsItsPromise) {
  const std::pair<MatmulPrecision, double> promises[] = {{MatmulPrecision::highest, 1e-5},
                                                         {MatmulPrecision::high, 2e-3},
                                                         {MatmulPrecision::medium, 1e-2},
                                                         {MatmulPrecision::bf16, 1e-2}};
  for (const auto& [precision, error] : promises) {
    SCOPED_TRACE(to_string(precision));
    set_matmul_precision(precision);
    const SomeProduct product(40, 50, 300);
    product.run();
    EXPECT_LE(product.error(), error);
    expect_layer(Layer<float>({40, 24, 128}), error);
  }
}

TEST_F(CudaProducts, DoublesAreAlwaysMultipliedInFull) {
  const GridOnDevice<double> a(random_grid<double>(40, 30, 0, 1)),
      b(random_grid<double>(30, 50, 0, 2)), full(40, 50), medium(40, 50);
  const auto run = [&](const GridOnDevice<double>& c) {
    tested().matmul(stream(), a.view(), Transpose::no, b.view(), Transpose::no, c.view(),
                    Write::overwrite);
    const auto content = c.content();
    return std::vector<double>(content.begin(), content.end());
  };
  const auto expected = run(full);
  set_matmul_precision(MatmulPrecision::medium);
  expect_close(run(medium), expected, 1e-13, 10);
}

}  // namespace
}  // namespace lockstep::kernels::cuda
