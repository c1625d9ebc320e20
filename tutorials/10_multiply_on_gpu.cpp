// 10: How does a Linear layer run on cuBLAS?
//
// You will see: how a library for column-major matrices multiplies row-major ones without a copy,
// by a gemm of plain loops beside the engine; what an epilogue saves (bias and ReLU inside the
// product); how the threads of a warp share a row of softmax; and how far float32 gradients are
// from Eigen's in double. Without a GPU, Eigen computes the engine's side.
//
// Run:  10_multiply_on_gpu [--device auto|cpu|cuda] [--fast]
//
// Expected output (abridged; times and errors differ):
//   y = x W^T            gemm(T, N, m=4, n=6, k=5, W, lda=5, x, ldb=5, y, ldc=4)
//   check: y, loops and engine: largest difference 1.1e-16, tolerance 1e-14 ... ok
//   linear with ReLU           1       34.3 MiB     25.11 ms
//   linear, then relu          2       98.3 MiB     32.96 ms
//   distance 1:   9 9 9 9 9 9 9 9
//   check: softmax beside Eigen in double: largest difference 3.1e-07, tolerance 1e-06 ... ok
//   check: highest: largest difference 1.8e-07, tolerance 1e-05 ... ok

#include <algorithm>
#include <cstdint>

#include "engine/autograd/grad_mode.h"
#include "engine/autograd/ops/ops.h"
#include "engine/nn/mlp.h"
#include "engine/nn/state_dict.h"
#include "engine/trace/recorder.h"
#include "kernels/matmul_precision.h"
#include "tutorials/common.h"
#include "tutorials/rows.h"

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
// leading dimension. cublasLtMatmul is given the same numbers, as descriptors.
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
  fmt::print("  {:<19}  ", name);
  gemm(op_b, op_a, c.cols, c.rows, inner, b, b.cols, a, a.cols, c, c.cols);
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
      "  column-major [3, 2]: its columns are 1 2 3 | 4 5 6: its transpose, and no byte moved\n");
  multiply("y = x W^T", x, 'N', weight, 'T', y);
  multiply("grad_x = grad_y W", grad_y, 'N', weight, 'N', grad_x);
  multiply("grad_W = grad_y^T x", grad_y, 'T', x, 'N', grad_weight);
  const Variable input(x.on(device), RequiresGrad::yes), w(weight.on(device), RequiresGrad::yes);
  const Variable output = linear(input, w, Variable());
  output.backward(grad_y.on(device));
  fmt::print("The engine: {}\n", device.type == DeviceType::cuda ? "cuBLASLt" : "Eigen (no GPU)");
  for (const auto& [loops, engine] :
       {std::pair{y, output.value()}, {grad_x, input.grad()}, {grad_weight, w.grad()}}) {
    tutorial::check_close(fmt::format("{}, loops and engine", loops.name),
                          tutorial::max_abs_difference(loops.on(device), engine), 1e-14);
  }
}

// Prints how many calls of the backend work() makes (the recorder counts them), and its time.
Tensor measure(const char* name, std::size_t num_bytes, const std::function<Tensor()>& work) {
  trace::start();
  Tensor result = work();  // also warms up: a GPU's algorithm is chosen here
  trace::stop();
  std::int64_t fastest_ns = INT64_MAX;
  for (int repeat = 0; repeat < 10; ++repeat) {
    result.stream().synchronize();
    const std::int64_t begin_ns = trace::now_ns();
    result = work();
    result.stream().synchronize();  // a GPU works on after it has been told what to do
    fastest_ns = std::min(fastest_ns, trace::now_ns() - begin_ns);
  }
  fmt::print("  {:<18} {:>9} {:>10.1f} MiB {:>9.2f} ms\n", name, trace::collect().spans.size(),
             static_cast<double>(num_bytes) / (1 << 20), 1e-6 * static_cast<double>(fastest_ns));
  return result;
}

void save_a_pass(Device device, std::size_t batch, std::size_t in, std::size_t out) {
  Rng rng(1);
  const Variable x(Tensor::uniform({batch, in}, -1, 1, rng, DType::float32, device));
  const Variable w(Tensor::uniform({out, in}, -1, 1, rng, DType::float32, device));
  const Variable b(Tensor::uniform({out}, -1, 1, rng, DType::float32, device));
  const std::size_t y_bytes = batch * out * sizeof(float);
  const std::size_t all_bytes = (batch * in + out * in + out) * sizeof(float) + y_bytes;
  const NoGradScope no_grad;
  fmt::print("  batch {}, in {}, out {}: calls, bytes moved, time\n", batch, in, out);
  const auto fuse = [&] { return linear(x, w, b, Activation::relu).value(); };
  const auto split = [&] { return relu(linear(x, w, b)).value(); };
  const Tensor fused = measure("linear with ReLU", all_bytes, fuse);
  const Tensor apart = measure("linear, then relu", all_bytes + 2 * y_bytes, split);
  tutorial::check_close("the same y", tutorial::max_abs_difference(fused, apart), 1e-4);
  fmt::print("y is in registers before it is written: an epilogue (RELU_BIAS) ends it there.\n");
}

// Threads of a warp run the same instruction and may read each other's registers: a shuffle.
void share_a_row(Device device) {
  std::vector<int> lanes = {3, 1, 4, 1, 5, 9, 2, 6};
  fmt::print("  each lane's largest of the row: {} (a warp has 32)\n", fmt::join(lanes, " "));
  for (std::size_t distance = 4; distance > 0; distance /= 2) {
    const std::vector<int> before = lanes;  // all lanes read at the same time
    for (std::size_t l = 0; l < 8; ++l) lanes[l] = std::max(before[l], before[l ^ distance]);
    fmt::print("  distance {}:   {}\n", distance, fmt::join(lanes, " "));
  }
  fmt::print("All know it after log2(8) shuffles, without memory; then the sum of exp likewise.\n");
  Rng rng(2);
  const Tensor logits = Tensor::normal({64, 100}, 0, 3, rng, DType::float32, Device{});
  const auto softmax_on = [&](Device where, DType dtype) {
    const Tensor x = logits.to(dtype).to(where), y = Tensor::empty(x.shape(), dtype, where);
    const Tensor labels = Tensor::zeros({64}, DType::int64, where), loss = y.slice(0, {1}).clone();
    x.backend().softmax_cross_entropy_forward(  // kernels/backend.h: one call for every device
        x.stream(), x.matrix(), labels.view(), Reduction::mean, y.matrix(), loss.view());
    return std::vector<Tensor>{y, loss};
  };
  const auto found = softmax_on(device, DType::float32), exact = softmax_on({}, DType::float64);
  const double difference = tutorial::max_abs_difference(found, exact);
  tutorial::check_close("softmax beside Eigen in double", difference, 1e-6);
}

// Parameters with the gradients of 64 digits' loss; their values are the same for both types.
// tanh, since it has no kink: at ReLU's, rounding can switch a value on, with its whole gradient.
std::vector<Variable> differentiate(Device device, DType dtype) {
  const auto model = nn::make_mlp("mlp:64-128-10:tanh", /*seed=*/0, dtype);
  nn::load_state_dict(*model, nn::state_dict(*nn::make_mlp("mlp:64-128-10:tanh", /*seed=*/0)));
  model->to(device);
  const tutorial::Rows rows = tutorial::load_digits(device).part(0, 64);
  cross_entropy((*model)(Variable(rows.x.to(dtype))), rows.labels).backward();
  return model->parameters();
}

// Tensor cores are many times faster than float32 arithmetic, but round the factors first: "high"
// to 10 bits after the point (TF32), "medium" to 7. PyTorch: torch.set_float32_matmul_precision.
void compare_precisions(Device device) {
  const std::vector<Variable> exact = differentiate({}, DType::float64);
  fmt::print("  relative error    0.weight    0.bias  2.weight    2.bias\n");
  for (const auto& [word, limit] : {std::pair{"highest", 1e-5}, {"high", 2e-3}, {"medium", 1e-2}}) {
    kernels::set_matmul_precision(kernels::parse_matmul_precision(word));
    const std::vector<Variable> found = differentiate(device, DType::float32);
    fmt::print("  {:<14}", word);
    double largest = 0;
    for (std::size_t p = 0; p < exact.size(); ++p) {
      const Tensor reference = exact[p].grad(), zero = Tensor::zeros(reference.shape());
      const double error = tutorial::max_abs_difference(found[p].grad(), reference) /
                           tutorial::max_abs_difference(reference, zero);
      if (!(error <= largest)) largest = error;  // also takes a NaN
      fmt::print("  {:>8.1e}", error);
    }
    fmt::print("\n");
    tutorial::check_close(word, largest, limit);
  }
  if (device.type == DeviceType::cpu) fmt::print("The CPU always multiplies in full.\n");
}

void run(const tutorial::Options& options) {
  tutorial::step(1, "row-major matrices through a column-major library");
  multiply_row_major(options.device());
  tutorial::step(2, "an epilogue: bias and ReLU inside the product");
  save_a_pass(options.device(), options.fast ? 256 : 8192, 64, options.fast ? 256 : 1024);
  tutorial::step(3, "a kernel of our own: a warp shares a row");
  share_a_row(options.device());
  tutorial::step(4, "what precision costs");
  compare_precisions(options.device());
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::tutorial::run_main(argc, argv, "How does a Linear layer run on cuBLAS?", run);
}
