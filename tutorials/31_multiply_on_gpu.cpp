// 31: How does a Linear layer run on cuBLAS, and what does precision cost?
//
// A Linear layer is one matrix product, and a GPU's library for it wants matrices column by column,
// where ours lie row by row. A transposed matrix is the same numbers in the other order, so nothing
// has to be copied. Tensor cores are several times as fast, because they round the factors to fewer
// bits.
//
// You will see: how a library for column-major matrices multiplies row-major ones without a copy;
// what an epilogue saves (bias and ReLU inside the product); and what TF32 and bfloat16, the
// formats of tensor cores, cost in precision: their rounding is emulated, beside a GPU's own if
// there is one.
//
// Run:  31_multiply_on_gpu [--in 256] [--bits 3] [--device auto|cpu|cuda] [--fast]
//
// Expected output with --fast: tutorials/expected/31.txt

#include <algorithm>
#include <bit>
#include <cstdint>

#include "engine/autograd/ops/ops.h"
#include "engine/autograd/variable.h"
#include "kernels/matmul_precision.h"
#include "tutorials/common.h"

namespace {

using namespace lockstep;

// A matrix of ours: row-major, element (i, j) at i * cols + j.
struct Matrix {
  const char* name;
  std::size_t rows, cols;
  std::vector<double> values = std::vector<double>(rows * cols);
  Tensor on(Device device) const { return Tensor::from(values, {rows, cols}, device); }
};

// C = op(A) * op(B) as in BLAS: column-major, so element (i, j) of a matrix is at i + j * its
// leading dimension. cublasLtMatmul is given the same numbers.
void gemm(char transa, char transb, std::size_t m, std::size_t n, std::size_t k, const Matrix& a,
          std::size_t lda, const Matrix& b, std::size_t ldb, Matrix& c, std::size_t ldc) {
  fmt::print("gemm({}, {}, m={}, n={}, k={}, {}, lda={}, {}, ldb={}, {}, ldc={})\n", transa, transb,
             m, n, k, a.name, lda, b.name, ldb, c.name, ldc);
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t i = 0; i < m; ++i) {
      double& sum = c.values[i + j * ldc];  // zero at first
      for (std::size_t p = 0; p < k; ++p) {
        sum += a.values[transa == 'T' ? p + i * lda : i + p * lda] *
               b.values[transb == 'T' ? j + p * ldb : p + j * ldb];
      }
    }
  }
}

// c = op(a) * op(b). Our c is the library's c^T, which is op(b)^T * op(a)^T: so the factors change
// places, each keeps its op, and our columns are its leading dimensions.
void multiply(const char* name, const Matrix& a, char op_a, const Matrix& b, char op_b, Matrix& c) {
  const std::size_t inner = op_a == 'T' ? a.rows : a.cols;
  fmt::print("  {}\n    ", name);
  gemm(op_b, op_a, c.cols, c.rows, inner, b, b.cols, a, a.cols, c, c.cols);
}

// The three products of a Linear layer: y = x W^T, and backward grad_y W and grad_y^T x.
std::vector<Tensor> run_layer(const std::vector<Tensor>& factors) {
  const Variable x(factors[0], RequiresGrad::yes), w(factors[1], RequiresGrad::yes);
  const Variable y = linear(x, w, Variable());
  y.backward(factors[2]);
  return {y.value(), x.grad(), w.grad()};
}

void multiply_row_major(Device device) {
  Rng rng(0);
  Matrix x{"x", 6, 5}, weight{"W", 4, 5}, y{"y", 6, 4};
  Matrix grad_y{"grad_y", 6, 4}, grad_x{"grad_x", 6, 5}, grad_weight{"grad_W", 4, 5};
  for (Matrix* drawn : {&x, &weight, &grad_y}) {
    for (double& value : drawn->values) value = rng.uniform(-1, 1);
  }
  fmt::print(
      "  memory 1 2 3 4 5 6, row-major [2, 3]: its rows are 1 2 3 | 4 5 6\n"
      "  column-major [3, 2]: its columns are 1 2 3 | 4 5 6: its transpose, and no byte\n"
      "  moved\n"
      "  gemm: C [m, n] = op(A) op(B), k products in each sum; N: as is, T: transposed\n"
      "  lda, ldb, ldc: leading dimensions, the elements from one column to the next\n");
  multiply("y = x W^T", x, 'N', weight, 'T', y);
  multiply("grad_x = grad_y W", grad_y, 'N', weight, 'N', grad_x);
  multiply("grad_W = grad_y^T x", grad_y, 'T', x, 'N', grad_weight);
  const auto engine = run_layer({x.on(device), weight.on(device), grad_y.on(device)});
  fmt::print("The engine: {}\n", device.type == DeviceType::cuda ? "cuBLASLt" : "Eigen (no GPU)");
  for (std::size_t i = 0; const Matrix* loops : {&y, &grad_x, &grad_weight}) {
    tutorial::check_close(fmt::format("{}, loops and engine", loops->name), loops->on(device),
                          engine[i++], 1e-14);
  }
}

void save_a_pass(Device device, std::size_t batch, std::size_t out) {
  Rng rng(1);
  const auto draw = [&](const Shape& shape) {
    return Variable(Tensor::uniform(shape, -1, 1, rng, DType::float32, device));
  };
  const Variable x = draw({batch, 64}), w = draw({out, 64}), b = draw({out});
  const NoGradScope no_grad;
  const auto fused = [&] { return linear(x, w, b, Activation::relu).value(); };
  const auto apart = [&] { return relu(linear(x, w, b)).value(); };
  tutorial::check_close("the same y", fused(), apart(), 1e-4);
  double fused_ms = 1e9, apart_ms = 1e9;  // in turn, so that both meet the same disturbances
  for (int i = 0; i < 10; ++i) {
    const auto time_ms = [&](const auto& work) {
      return 1e3 * tutorial::fastest_seconds(1, [&] { tutorial::synchronize(work().device()); });
    };
    fused_ms = std::min(fused_ms, time_ms(fused));
    apart_ms = std::min(apart_ms, time_ms(apart));
  }
  fmt::print("  y [{}, {}], linear with ReLU:  {:.2f} ms\n", batch, out, fused_ms);
  fmt::print("  linear, then relu: {:.2f} ms, and {:.1f} MiB more are read and written\n", apart_ms,
             double(8 * batch * out) / (1 << 20));
  tutorial::say(fmt::format(
      "y is in registers before it is written, and an epilogue (RELU_BIAS) finishes it there. {}",
      fused_ms < apart_ms
          ? fmt::format("Here that saves {:.0f} % of the time.", 100 * (1 - fused_ms / apart_ms))
          : "Here that saves no time."));
}

// Rounds to so many bits after the point, to the nearest, halves to even: what a tensor core makes
// of its factors before it multiplies. All these formats have the 8 bits of float32's exponent.
Tensor round_to(int bits, const Tensor& x) {
  std::vector<float> values = x.to_vector<float>();
  const std::uint32_t unit = 1u << (23 - bits);  // the last bit that is kept
  for (float& value : values) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t is_odd = word / unit % 2;
    if (bits < 23) value = std::bit_cast<float>((word + unit / 2 - 1 + is_odd) / unit * unit);
  }
  return Tensor::from(values, x.shape());
}

// Prints a format, 0.1 in it, and each product's largest error relative to its largest value.
double show_errors(const std::string& name, int bits, const std::vector<Tensor>& found,
                   const std::vector<Tensor>& exact) {
  fmt::print("  {:<13} {:>3}  {:.8f}", name, bits, round_to(bits, Tensor::full({1}, 0.1)).item());
  double largest = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const Tensor zero = Tensor::zeros(exact[i].shape(), exact[i].dtype());
    const double error = tutorial::max_abs_difference(found[i], exact[i]) /
                         tutorial::max_abs_difference(exact[i], zero);
    if (!(error <= largest)) largest = error;  // also takes a NaN
    fmt::print("  {:>8.1e}", error);
  }
  fmt::print("\n");
  return largest;
}

std::vector<double> compare_precisions(Device device, std::size_t in, int own_bits) {
  Rng rng(2);
  std::vector<Tensor> factors, doubles;  // x, W and grad_y
  for (const Shape& shape : {Shape{64, in}, Shape{128, in}, Shape{64, 128}}) {
    factors.push_back(Tensor::normal(shape, 0, 1, rng, DType::float32, Device{}));
    doubles.push_back(factors.back().to(DType::float64));
  }
  const std::vector<Tensor> exact = run_layer(doubles);
  fmt::print("x [64, {0}], W [128, {0}]; errors against float64, over the largest value\n", in);
  fmt::print("  factors      bits  0.1 becomes       y    grad_x    grad_W\n");
  const auto emulate = [&](const char* name, int bits) {
    std::vector<Tensor> rounded;
    for (const Tensor& factor : factors) rounded.push_back(round_to(bits, factor));
    return show_errors(name, bits, run_layer(rounded), exact);
  };
  const double full = emulate("float32", 23), tf32 = emulate("TF32", 10);
  const double half = emulate("bfloat16", 7);
  emulate("--bits", own_bits);
  const auto on_gpu = [&](const char* word, int bits, double limit) {
    kernels::set_matmul_precision(kernels::parse_matmul_precision(word));
    std::vector<Tensor> there;
    for (const Tensor& factor : factors) there.push_back(factor.to(device));
    const double error = show_errors(fmt::format("GPU, {}", word), bits, run_layer(there), exact);
    tutorial::check_close(word, error, limit);
  };
  if (device.type == DeviceType::cuda) {
    on_gpu("highest", 23, 1e-5);
    on_gpu("high", 10, 2 * tf32);
    on_gpu("medium", 7, 2 * half);
  }
  tutorial::say(
      "Products of two such factors are exact in float32, and are added in float32. A GPU's tensor "
      "cores do the same, but add in another order, so that the last digits differ. PyTorch's "
      "switch is torch.set_float32_matmul_precision: highest, high (TF32), medium (bfloat16).");
  tutorial::check_close("float32", full, 1e-5);
  tutorial::check_close("TF32", tf32, 1e-3);
  tutorial::check("3 bits less make errors about 2^3 times as large",
                  half / tf32 > 4 && half / tf32 < 16);
  return {full, tf32, half};
}

void run(const tutorial::Options& options, int in, int bits) {
  tutorial::step(1, "row-major matrices through a column-major library");
  multiply_row_major(options.device());
  tutorial::step(2, "an epilogue: bias and ReLU inside the product");
  save_a_pass(options.device(), options.fast ? 2048 : 8192, 1024);
  tutorial::step(3, "what precision costs: rounding as tensor cores do");
  const auto errors = compare_precisions(options.device(), in, bits);
  tutorial::answer(
      fmt::format(
          "It is one column-major gemm per product: the factors swap places, and nothing is "
          "copied. For the sake of speed tensor cores round the factors: relative to the largest "
          "value the error is {:.0e} in float32, {:.0e} in TF32, {:.0e} in bfloat16.",
          errors[0], errors[1], errors[2]),
      {{"--bits 3",
        "The mantissa of FP8 (E4M3), 4 bits shorter than bfloat16's: errors are about "
        "2^4 times as large."},
       {"--in 16384", "64 times as many products in each sum: what becomes of the errors?"}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  int in = 256, bits = 5;
  const auto add_flags = [&](Flags& flags, Options&) {
    flags.add_number("--in", in, 16, 65536, "input features in step 3");
    flags.add_number("--bits", bits, 1, 22, "bits after the point of a format of yours");
  };
  return run_main(argc, argv,
                  "How does a Linear layer run on cuBLAS, and what does precision cost?",
                  [&](const Options& options) { run(options, in, bits); }, {1, add_flags});
}
