// The same step as eigen_floor.cpp made of the CPU backend's kernels, without tensors or autograd:
// what the kernels alone cost. The engine's step minus this one is the engine's overhead.
//
//   kernel_step 2 256 784 256 128 10    prints "threads batch median_us gflops"
#include <chrono>
#include <cstdint>

#include "engine/core/rng.h"
#include "engine/runtime/logical_device.h"
#include "kernels/backend.h"
#include "report.h"

namespace {

using namespace lockstep;
using kernels::Activation;
using kernels::Reduction;

struct Matrix {
  std::size_t rows = 0, cols = 0;
  float* data = nullptr;

  Matrix() = default;
  Matrix(std::size_t r, std::size_t c, double scale = 0) : rows(r), cols(c) {
    auto& memory = runtime::logical_device({}).memory();
    data = static_cast<float*>(memory.allocate(r * c * sizeof(float)).data);
    Rng rng(r * 31 + c);
    for (std::size_t i = 0; i < r * c; ++i) {
      data[i] = scale == 0 ? 0.0f : static_cast<float>(rng.uniform(-scale, scale));
    }
  }
  MatrixView matrix() const { return matrix_view(data, DType::float32, rows, cols); }
  TensorView vector() const { return {data, DType::float32, rows * cols}; }
};

struct Layer {
  Matrix weight, weight_grad, weight_momentum;  // [out, in]
  Matrix bias, bias_grad, bias_momentum;        // [1, out]
  Matrix output, output_grad, scratch;          // [batch, out]
};

}  // namespace

int main(int argc, char** argv) {
  const StepBenchmark benchmark = parse_step_benchmark(argc, argv);
  runtime::set_threads_per_device(static_cast<std::size_t>(benchmark.threads));
  auto& stream = runtime::logical_device({}).compute_stream();
  auto& backend = kernels::backend(DeviceType::cpu);

  const Matrix x(benchmark.batch, benchmark.sizes[0], 1);
  std::vector<Layer> layers(benchmark.sizes.size() - 1);
  std::vector<kernels::OptimizerParameter> parameters;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::size_t in = benchmark.sizes[i];
    const std::size_t out = benchmark.sizes[i + 1];
    Layer& layer = layers[i];
    layer.weight = Matrix(out, in, 0.05);
    layer.weight_grad = layer.weight_momentum = Matrix(out, in);
    layer.weight_momentum = Matrix(out, in);
    layer.bias = Matrix(1, out);
    layer.bias_grad = Matrix(1, out);
    layer.bias_momentum = Matrix(1, out);
    layer.output = Matrix(benchmark.batch, out);
    layer.output_grad = Matrix(benchmark.batch, out);
    layer.scratch = Matrix(benchmark.batch, out);
    parameters.push_back(
        {layer.weight.vector(), layer.weight_grad.vector(), layer.weight_momentum.vector()});
    parameters.push_back(
        {layer.bias.vector(), layer.bias_grad.vector(), layer.bias_momentum.vector()});
  }
  std::vector<std::int64_t> labels(benchmark.batch);
  for (std::size_t r = 0; r < labels.size(); ++r) {
    labels[r] = static_cast<std::int64_t>(r % benchmark.sizes.back());
  }
  const ConstTensorView label_view{labels.data(), DType::int64, labels.size()};
  const Matrix probabilities(benchmark.batch, benchmark.sizes.back());
  float loss = 0;
  const float one = 1;
  const double learning_rate = 0.01;
  std::int64_t step_number = 0;
  const kernels::StepScalars scalars{{&learning_rate, DType::float64, 1},
                                     {&step_number, DType::int64, 1}};

  const auto step = [&] {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const bool last = i + 1 == layers.size();
      const Matrix& input = i == 0 ? x : layers[i - 1].output;
      backend.linear_forward(stream, input.matrix(), layers[i].weight.matrix(),
                             layers[i].bias.vector(), last ? Activation::none : Activation::relu,
                             layers[i].output.matrix(), {});
    }
    backend.softmax_cross_entropy_forward(stream, layers.back().output.matrix(), label_view,
                                          Reduction::mean, probabilities.matrix(),
                                          {&loss, DType::float32, 1});
    backend.softmax_cross_entropy_backward(stream, probabilities.matrix(), label_view,
                                           Reduction::mean, {&one, DType::float32, 1},
                                           layers.back().output_grad.matrix());
    for (std::size_t i = layers.size(); i-- > 0;) {
      const bool last = i + 1 == layers.size();
      ConstMatrixView grad = layers[i].output_grad.matrix();
      if (!last) {
        grad = layers[i].scratch.matrix();
        backend.activation_backward(stream, Activation::relu, layers[i].output.vector(),
                                    layers[i].output_grad.vector(), layers[i].scratch.vector());
      }
      const Matrix& input = i == 0 ? x : layers[i - 1].output;
      backend.linear_backward(stream, input.matrix(), layers[i].weight.matrix(), grad,
                              i == 0 ? MatrixView{} : layers[i - 1].output_grad.matrix(),
                              layers[i].weight_grad.matrix(), layers[i].bias_grad.vector());
    }
    backend.sgd(stream, parameters, scalars, {.momentum = 0.9});
  };
  std::vector<double> seconds;
  for (int i = 0; i < benchmark.steps; ++i) {
    const auto start = std::chrono::steady_clock::now();
    step();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    seconds.push_back(elapsed.count());
  }
  report(benchmark, seconds);
}
