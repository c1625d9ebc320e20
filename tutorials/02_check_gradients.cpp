// 02: What does backward() compute, and how do you know that it is right?
//
// You will see: the gradient of mse(relu(x W^T + b), target) computed by plain loops from the chain
// rule, by the engine's backward(), and by central differences, which need no calculus; the graph
// that backward() walks; that gradients add up until they are cleared (so gradients of several
// devices are easy to sum); and what no_grad is for.
//
// Run:  02_check_gradients [--device auto|cpu|cuda] [--fast]
//
// Expected output (abridged):
//   MseLoss
//     ReLU
//       Linear
//   d loss / d        by hand        engine  differences
//   W[0]         -0.002729416  -0.002729416  -0.002729416
//   b[0]          0.055915123   0.055915123   0.055915123
//   check: W: engine and by hand: largest difference 1.2e-17, tolerance 1e-15 ... ok
//   check: W: engine and central differences: largest difference 8.5e-12, tolerance 1e-08 ... ok
//   check: two backward passes leave the sum: largest difference 0, tolerance 1e-15 ... ok

#include <algorithm>
#include <string>
#include <vector>

#include "engine/autograd/gradient_check.h"
#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "tutorials/common.h"

namespace {

using namespace lockstep;

// One layer: x [4, 3], W [2, 3], b [2] -> y [4, 2]. In double: float32 has about 7 digits, and
// the difference of two nearly equal losses would lose most of them.
constexpr std::size_t kBatch = 4;
constexpr std::size_t kIn = 3;
constexpr std::size_t kOut = 2;

using Values = std::vector<double>;

struct Layer {
  Values x, target, weight, bias;
};

Layer make_layer() {
  Rng rng(1);
  const auto draw = [&rng](std::size_t count) {
    Values values(count);
    for (double& value : values) value = rng.uniform(-1, 1);
    return values;
  };
  return {draw(kBatch * kIn), draw(kBatch * kOut), draw(kOut * kIn), draw(kOut)};
}

// Forward and backward written out: what the engine does, in a dozen lines.
struct ByHand {
  double loss = 0;
  Values grad_weight = Values(kOut * kIn);
  Values grad_bias = Values(kOut);
};

ByHand differentiate_by_hand(const Layer& layer) {
  ByHand result;
  for (std::size_t n = 0; n < kBatch; ++n) {
    for (std::size_t o = 0; o < kOut; ++o) {
      double z = layer.bias[o];  // z = x W^T + b
      for (std::size_t i = 0; i < kIn; ++i) z += layer.x[n * kIn + i] * layer.weight[o * kIn + i];
      const double y = std::max(z, 0.0);  // y = relu(z)
      const double error = y - layer.target[n * kOut + o];
      result.loss += error * error / (kBatch * kOut);  // the mean over all elements
      // Backward: the chain rule, from the loss to the parameters.
      const double grad_y = 2 * error / (kBatch * kOut);  // d loss / d y
      const double grad_z = z > 0 ? grad_y : 0;           // relu passes it on, or stops it
      result.grad_bias[o] += grad_z;                      // d z / d b = 1
      for (std::size_t i = 0; i < kIn; ++i) {             // d z / d W = x
        result.grad_weight[o * kIn + i] += grad_z * layer.x[n * kIn + i];
      }
    }
  }
  return result;
}

// The same with the engine: leaves (made by the user), of which the parameters want a gradient.
struct OnEngine {
  Variable x, weight, bias;
  Tensor target;
  OnEngine(const Layer& layer, Device device)
      : x(Tensor::from(layer.x, {kBatch, kIn}, device)),
        weight(Tensor::from(layer.weight, {kOut, kIn}, device), RequiresGrad::yes),
        bias(Tensor::from(layer.bias, {kOut}, device), RequiresGrad::yes),
        target(Tensor::from(layer.target, {kBatch, kOut}, device)) {}
  Variable loss() const { return mse_loss(relu(linear(x, weight, bias)), target); }
};

// (loss(v + h) - loss(v - h)) / 2h for every value v of a parameter: slow, but it only needs the
// loss, so it cannot repeat a mistake in backward(). Only a z within h of relu's kink misleads it.
Values differentiate_by_differences(Layer layer, Values Layer::*parameter, Device device) {
  constexpr double kStep = 1e-6;
  const NoGradScope no_grad;  // only values are needed: no graph is built
  const auto loss = [&] { return OnEngine(layer, device).loss().value().item(); };
  Values result;
  for (std::size_t i = 0; i < (layer.*parameter).size(); ++i) {
    double& value = (layer.*parameter)[i];
    const double original = value;
    value = original + kStep;
    const double above = loss();
    value = original - kStep;
    const double below = loss();
    value = original;
    result.push_back((above - below) / (2 * kStep));
  }
  return result;
}

void compare(const char* name, const Values& by_hand, const Tensor& engine, const Values& central) {
  const Values by_engine = engine.to_vector<double>();
  for (std::size_t i = 0; i < by_hand.size(); ++i) {
    fmt::print("  {}[{}]         {:>12.9f}  {:>12.9f}  {:>12.9f}\n", name, i, by_hand[i],
               by_engine[i], central[i]);
  }
  const auto difference = [&](const Values& values) {
    return tutorial::max_abs_difference(engine, Tensor::from(values, engine.shape()));
  };
  tutorial::check_close(fmt::format("{}: engine and by hand", name), difference(by_hand), 1e-15);
  tutorial::check_close(fmt::format("{}: engine and central differences", name),
                        difference(central), 1e-8);
}

// Every operation whose inputs need a gradient leaves a node that knows its inputs' nodes.
// PyTorch: loss.grad_fn and grad_fn.next_functions.
void print_graph(const Node& node, int depth) {
  fmt::print("  {:{}}{}\n", "", depth * 2, node.name());
  for (std::size_t i = 0; i < node.num_inputs(); ++i) {
    const Edge& edge = node.edge(i);
    if (edge.node) {
      print_graph(*edge.node, depth + 1);
    } else {
      fmt::print("  {:{}}{}\n", "", depth * 2 + 2,
                 edge.is_wanted() ? "leaf " + to_string(edge.shape) + ": receives its gradient here"
                                  : "an input that needs no gradient");
    }
  }
}

void run(const tutorial::Options& options) {
  const Layer layer = make_layer();
  const OnEngine engine(layer, options.device());

  tutorial::step(1, "forward, and the graph it leaves behind");
  const ByHand by_hand = differentiate_by_hand(layer);
  const Variable loss = engine.loss();
  fmt::print("loss by hand {:.12f}, by the engine {:.12f}\n", by_hand.loss, loss.value().item());
  print_graph(*loss.node(), 0);

  tutorial::step(2, "backward, computed in three ways");
  loss.backward();
  fmt::print("  d loss / d        by hand        engine  differences\n");
  compare("W", by_hand.grad_weight, engine.weight.grad(),
          differentiate_by_differences(layer, &Layer::weight, options.device()));
  compare("b", by_hand.grad_bias, engine.bias.grad(),
          differentiate_by_differences(layer, &Layer::bias, options.device()));

  tutorial::step(3, "gradients add up");
  const Tensor once = engine.bias.grad().clone();
  fmt::print("A second backward() through the same graph is an error, since its memory is gone:\n");
  fmt::print("  {}\n", tutorial::expect_error([&] { loss.backward(); }));
  engine.loss().backward();
  fmt::print("After a new forward and backward, b[0]'s gradient is {:.9f}: twice the first.\n",
             engine.bias.grad().slice(0, {1}).item());
  tutorial::check_close(
      "two backward passes leave the sum",
      tutorial::max_abs_difference(engine.bias.grad(), scale(Variable(once), 2).value()), 1e-15);
  Variable bias = engine.bias;  // a handle to the same variable
  bias.clear_grad();
  engine.loss().backward();
  tutorial::check_close("after clear_grad (PyTorch: zero_grad) it is the first one again",
                        tutorial::max_abs_difference(engine.bias.grad(), once), 0);

  tutorial::step(4, "the same check for any function");
  const auto layer_output = [&engine](const std::vector<Variable>& inputs) {
    return relu(linear(engine.x, inputs[0], inputs[1]));
  };
  const GradientCheckResult result = check_gradients(layer_output, {engine.weight, engine.bias});
  tutorial::check_close("check_gradients() on W and b, relative", result.largest(), 1e-6);

  tutorial::step(5, "no_grad: values without a graph");
  const NoGradScope no_grad;
  const Variable quiet = engine.loss();
  fmt::print("loss {:.12f}, requires_grad {}, node {}; its backward() fails:\n",
             quiet.value().item(), quiet.requires_grad(), quiet.node() ? "yes" : "none");
  fmt::print("  {}\n", tutorial::expect_error([&] { quiet.backward(); }));
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::tutorial::run_main(
      argc, argv, "What does backward() compute, and how do you know that it is right?", run);
}
