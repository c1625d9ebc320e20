// Products as they are timed, and the precisions that only a GPU distinguishes.
#include <cmath>
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

// The library's documentation does not say what its ReLU makes of a NaN.
TEST_F(CudaProducts, AReluLeavesANanANan) {
  constexpr std::size_t kNanRow = 3;
  for (const LayerSizes& s : {LayerSizes{40, 24, 16}, {64, 64, 33}, {5, 128, 128}}) {
    for (const MatmulPrecision precision : {MatmulPrecision::highest, MatmulPrecision::high}) {
      SCOPED_TRACE(::testing::Message()
                   << s.batch << " x " << s.in << " x " << s.out << ", " << to_string(precision));
      set_matmul_precision(precision);
      Layer<float> layer(s);
      layer.x(kNanRow, 1) = NAN;
      const GridOnDevice<float> x(layer.x), weight(layer.weight), y(s.batch, s.out);
      const OnDevice<float> bias(layer.bias);
      tested().linear_forward(
          stream(), {x.view(), weight.view(), bias.view(), Activation::relu, y.view(), {}});
      const Grid<float> result = y.grid();
      for (std::size_t i = 0; i < s.batch; ++i) {
        for (std::size_t j = 0; j < s.out; ++j) EXPECT_EQ(std::isnan(result(i, j)), i == kNanRow);
      }
    }
  }
}

TEST_F(CudaProducts, ABfloat16ActivationLeavesANanANan) {
  constexpr std::size_t kRows = 40, kNanRow = 3;
  for (const std::size_t out : {64, 24, 33}) {
    const Tensor wide = Tensor::full({kRows, 16}, 0.5, DType::float32, test_device());
    wide.rows(kNanRow, kNanRow + 1).fill(NAN);
    const Tensor x = wide.to(DType::bfloat16);
    const Tensor weight = Tensor::full({out, 16}, 0.5, DType::float32, test_device());
    const Tensor bias = Tensor::full({out}, 0.5, DType::float32, test_device());
    for (const auto activation : {Activation::none, Activation::relu, Activation::gelu_tanh}) {
      SCOPED_TRACE(::testing::Message() << out << ", activation " << int(activation));
      const Tensor y = Tensor::empty({kRows, out}, DType::bfloat16, test_device()), z = y.clone();
      tested().linear_forward(stream(),
                              {x.matrix(), weight.matrix(), bias.view(), activation, y.matrix(),
                               needs_preactivation(activation) ? z.matrix() : MatrixView{}});
      const auto result = y.to_vector<float>();
      for (std::size_t i = 0; i < result.size(); ++i) {
        EXPECT_EQ(std::isnan(result[i]), i / out == kNanRow);
      }
    }
  }
}

TEST_F(CudaProducts, DoublesAreAlwaysMultipliedInFull) {
  const GridOnDevice<double> a(random_grid<double>(40, 30, 0, 1)),
      b(random_grid<double>(30, 50, 0, 2)), full(40, 50), medium(40, 50);
  const auto run = [&](const GridOnDevice<double>& c) {
    tested().matmul(stream(),
                    {a.view(), Transpose::no, b.view(), Transpose::no, c.view(), Write::overwrite});
    const auto content = c.content();
    return std::vector<double>(content.begin(), content.end());
  };
  const auto expected = run(full);
  set_matmul_precision(MatmulPrecision::medium);
  expect_close(run(medium), expected, 1e-13, 10);
}

}  // namespace
}  // namespace lockstep::kernels::cuda
