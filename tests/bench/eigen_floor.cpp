// The floor: one training step of an MLP written directly in Eigen with OpenMP, without an engine.
// The engine's step is compared with it (scripts/check_targets.sh).
//
//   eigen_floor THREADS BATCH SIZE SIZE...     sizes of the layers, input first; prints "threads
//   batch
//                                              median_us"
//
// Two of these at once, each with half the batch and one thread, give the ceiling of what two ranks
// can reach on this machine.
#include <Eigen/Dense>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Row = Eigen::Matrix<float, 1, Eigen::Dynamic>;
using Eigen::Index;

constexpr float kLearningRate = 0.01f;
constexpr float kMomentum = 0.9f;

struct Layer {
  Matrix weight, weight_grad, weight_momentum;  // [out, in]
  Row bias, bias_grad, bias_momentum;           // [out]
  Matrix output;                                // [batch, out]
};

// Activations; the last layer's output is the logits.
void forward(const Matrix& x, std::vector<Layer>& layers) {
  const Matrix* input = &x;
  for (Layer& layer : layers) {
    layer.output.noalias() = *input * layer.weight.transpose();
    layer.output.rowwise() += layer.bias;
    if (&layer != &layers.back()) layer.output = layer.output.cwiseMax(0.0f);
    input = &layer.output;
  }
}

// Gradient of the mean cross-entropy; row r has label r % classes.
Matrix loss_gradient(const Matrix& logits) {
  Matrix grad = logits;
  const auto batch = static_cast<float>(logits.rows());
  for (Index r = 0; r < grad.rows(); ++r) {
    grad.row(r) = (grad.row(r).array() - grad.row(r).maxCoeff()).exp();
    grad.row(r) /= grad.row(r).sum() * batch;
    grad(r, r % grad.cols()) -= 1.0f / batch;
  }
  return grad;
}

void backward(const Matrix& x, std::vector<Layer>& layers) {
  Matrix grad = loss_gradient(layers.back().output);
  for (std::size_t i = layers.size(); i-- > 0;) {
    Layer& layer = layers[i];
    const Matrix& input = i == 0 ? x : layers[i - 1].output;
    layer.weight_grad.noalias() = grad.transpose() * input;
    layer.bias_grad = grad.colwise().sum();
    if (i > 0) {
      Matrix below(input.rows(), input.cols());
      below.noalias() = grad * layer.weight;
      grad = (input.array() > 0).select(below, 0.0f);
    }
  }
}

void update(std::vector<Layer>& layers) {
  for (Layer& layer : layers) {
    layer.weight_momentum = kMomentum * layer.weight_momentum + layer.weight_grad;
    layer.weight -= kLearningRate * layer.weight_momentum;
    layer.bias_momentum = kMomentum * layer.bias_momentum + layer.bias_grad;
    layer.bias -= kLearningRate * layer.bias_momentum;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: %s THREADS BATCH SIZE SIZE...\n", argv[0]);
    return 2;
  }
  const int threads = std::atoi(argv[1]);
  const Index batch = std::atol(argv[2]);
  Eigen::setNbThreads(threads);
  const Matrix x = Matrix::Random(batch, std::atol(argv[3]));
  std::vector<Layer> layers;
  for (int word = 4; word < argc; ++word) {
    const Index in = std::atol(argv[word - 1]), out = std::atol(argv[word]);
    Layer& layer = layers.emplace_back();
    layer.weight = Matrix::Random(out, in) * 0.05f;
    layer.weight_grad = layer.weight_momentum = Matrix::Zero(out, in);
    layer.bias = layer.bias_grad = layer.bias_momentum = Row::Zero(out);
    layer.output.resize(batch, out);
  }
  std::vector<double> seconds;
  for (int step = 0; step < 40; ++step) {
    const auto start = std::chrono::steady_clock::now();
    forward(x, layers);
    backward(x, layers);
    update(layers);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    seconds.push_back(elapsed.count());
  }
  std::ranges::sort(seconds);
  std::printf("%d %ld %.1f\n", threads, batch, seconds[seconds.size() / 2] * 1e6);
}
