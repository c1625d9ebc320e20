// 02: What does backward() compute, and how do you know that it is right?
//
// Training needs to know how the loss changes with each weight: its gradient. backward() finds all
// of them by the chain rule, going through the computation from its end to its beginning. A wrong
// gradient trains, too, only worse, so you should be able to check one: a small change of the
// weight must change the loss by as much as its gradient says.
//
// You will see: the gradient of mse(relu(x W^T + b), target) computed by plain loops from the chain
// rule, by the engine's backward(), and by differences of the loss, which need no calculus; the
// graph that backward() walks; and that gradients add up until they are cleared (so gradients of
// several devices are easy to sum).
//
// Run:  02_check_gradients [--mistake none|relu|mean] [--step 1e-6] [--device auto|cpu|cuda]
// [--fast]
//
// Expected output with --fast: tutorials/expected/02.txt

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "engine/autograd/variable.h"
#include "tutorials/common.h"

namespace {

using namespace lockstep;

// One layer: x [4, 3], W [2, 3], b [2] -> y [4, 2]. In double: float32 has about 7 digits, and
// the difference of two nearly equal losses would lose most of them.
constexpr std::size_t kBatch = 4, kIn = 3, kOut = 2;
constexpr std::size_t kBias = kOut * kIn;  // b begins here, behind W

using Values = std::vector<double>;
struct Layer {
  Values x, target, parameters;  // W, then b
};

Layer make_layer() {
  Rng rng(1);
  Layer layer{Values(kBatch * kIn), Values(kBatch * kOut), Values(kBias + kOut)};
  for (Values* values : {&layer.x, &layer.target, &layer.parameters}) {
    for (double& value : *values) value = rng.uniform(-1, 1);
  }
  return layer;
}

// Forward and backward written out: what the engine does, in a dozen lines.
struct ByHand {
  double loss = 0;
  Values grad = Values(kBias + kOut);
};

ByHand differentiate_by_hand(const Layer& layer, const std::string& mistake) {
  ByHand result;
  const Values& p = layer.parameters;
  constexpr double kCount = kBatch * kOut;
  for (std::size_t n = 0; n < kBatch; ++n) {
    for (std::size_t o = 0; o < kOut; ++o) {
      double z = p[kBias + o];  // z = x W^T + b
      for (std::size_t i = 0; i < kIn; ++i) z += layer.x[n * kIn + i] * p[o * kIn + i];
      const double y = std::max(z, 0.0);  // y = relu(z)
      const double error = y - layer.target[n * kOut + o];
      result.loss += error * error / kCount;  // the mean over all elements
      // Backward: the chain rule, from the loss to the parameters.
      const double grad_y = 2 * error / (mistake == "mean" ? 1 : kCount);  // d loss / d y
      const bool is_stopped = z <= 0 && mistake != "relu";
      const double grad_z = is_stopped ? 0 : grad_y;  // relu passes it on, or stops it
      result.grad[kBias + o] += grad_z;               // d z / d b = 1
      for (std::size_t i = 0; i < kIn; ++i) {         // d z / d W = x
        result.grad[o * kIn + i] += grad_z * layer.x[n * kIn + i];
      }
    }
  }
  return result;
}

// The same with the engine.
struct OnEngine {
  Variable x, weight, bias;
  Tensor target;
  OnEngine(const Layer& layer, Device device)
      : x(Tensor::from(layer.x, {kBatch, kIn}, device)),
        target(Tensor::from(layer.target, {kBatch, kOut}, device)) {
    const Tensor parameters = Tensor::from(layer.parameters, {kBias + kOut}, device);
    weight = Variable(parameters.slice(0, {kOut, kIn}).clone(), RequiresGrad::yes);
    bias = Variable(parameters.slice(kBias, {kOut}).clone(), RequiresGrad::yes);
  }
  Variable loss() const { return mse_loss(relu(linear(x, weight, bias)), target); }
  Values grad() const {
    Values all = weight.grad().to_vector<double>();
    for (const double value : bias.grad().to_vector<double>()) all.push_back(value);
    return all;
  }
};

// (loss(v + h) - loss(v - h)) / 2h for every parameter v: slow, but it only needs the loss, so it
// cannot repeat a mistake in backward(). Only a z within h of relu's kink misleads it.
// check_gradients() in engine/autograd/gradient_check.h does this for any function.
Values differentiate_by_differences(Layer layer, double h, Device device) {
  const NoGradScope no_grad;  // only values are needed: no graph is built, and nothing is kept
  const auto loss = [&] { return OnEngine(layer, device).loss().item(); };
  Values result;
  for (double& v : layer.parameters) {
    const double original = v;
    v = original + h;
    const double above = loss();
    v = original - h;
    const double below = loss();
    v = original;
    result.push_back((above - below) / (2 * h));
  }
  return result;
}

double largest_difference(const Values& a, const Values& b) {
  return tutorial::max_abs_difference(Tensor::from(a, {a.size()}), Tensor::from(b, {b.size()}));
}

// Every operation whose inputs need a gradient leaves a node that knows its inputs' nodes.
// PyTorch: loss.grad_fn and grad_fn.next_functions.
void print_graph(const Node& node, int depth) {
  fmt::print("  {:{}}{}\n", "", depth * 2, node.name());
  for (std::size_t i = 0; i < node.num_inputs(); ++i) {
    const Edge& edge = node.edge(i);
    if (edge.node) print_graph(*edge.node, depth + 1);
    const char* leaf = edge.is_wanted() ? "a parameter: gets its gradient" : "x: needs no gradient";
    if (!edge.node) fmt::print("  {:{}}{}\n", "", depth * 2 + 2, leaf);
  }
}

void run(const tutorial::Options& options, const std::string& mistake, double h) {
  const Layer layer = make_layer();
  const OnEngine engine(layer, options.device());

  tutorial::step(1, "forward, and the graph that it leaves for backward()");
  const ByHand by_hand = differentiate_by_hand(layer, mistake);
  const Variable loss = engine.loss();
  fmt::print("loss by hand {:.12f}, by the engine {:.12f}\n", by_hand.loss, loss.item());
  print_graph(*loss.node(), 0);

  tutorial::step(2, "backward, computed in three ways");
  loss.backward();
  const Values grad = engine.grad();
  const Values slow = differentiate_by_differences(layer, h, options.device());
  fmt::print("differences: (loss(v + h) - loss(v - h)) / 2h for each value v, with h = {}\n", h);
  fmt::print("  d loss / d        by hand        engine  differences\n");
  for (std::size_t i = 0; i < grad.size(); ++i) {
    fmt::print("  {}[{}]         {:>12.9f}  {:>12.9f}  {:>12.9f}\n", i < kBias ? "W" : "b",
               i % kBias, by_hand.grad[i], grad[i], slow[i]);
  }
  const double from_hand = largest_difference(grad, by_hand.grad);
  const double from_differences = largest_difference(grad, slow);
  if (mistake == "none") tutorial::check_close("engine and by hand", from_hand, 1e-15);
  if (mistake != "none") tutorial::check("the mistake by hand shows", from_hand > 1e-3);
  // Two losses of 16 digits are subtracted, and the few digits left are divided by 2h.
  tutorial::check_close("engine and differences", from_differences, 1e-14 / h);

  tutorial::step(3, "gradients add up");
  fmt::print("A second backward() through the same graph is an error, since it was freed:\n");
  tutorial::show_error([&] { loss.backward(); });
  engine.loss().backward();  // a new forward, and so a new graph
  fmt::print("After a new forward and backward, b[0]'s gradient is {:.9f}: twice as much.\n",
             engine.grad()[kBias]);
  tutorial::check_close("two backward passes leave the sum",
                        std::abs(engine.grad()[kBias] - 2 * grad[kBias]), 1e-15);
  for (Variable p : {engine.weight, engine.bias}) p.clear_grad();  // PyTorch: zero_grad()
  engine.loss().backward();
  tutorial::check_close("after clear_grad() backward gives the first gradients again",
                        largest_difference(engine.grad(), grad), 0);

  tutorial::answer(
      fmt::format(
          "It computes how much the loss changes with each parameter: d loss / d W[1] is {:.4f}, "
          "so adding 0.01 to W[1] changes the loss by about {:+.6f}. Two other ways should agree: "
          "the "
          "chain rule by hand differs by {:.0e}, differences of the loss by {:.0e}.",
          grad[1], 0.01 * grad[1], from_hand, from_differences),
      {{"--mistake relu",
        "The gradient by hand forgets relu: the loss does not show it, but the differences do."},
       {"--step 1e-11",
        "The two losses then differ only in their last digits, so only 3 or 4 digits are right."}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  std::string mistake = "none";
  double h = 1e-6;
  const auto add_flags = [&](Flags& flags, Options&) {
    flags.add_choice("--mistake", mistake, {"none", "relu", "mean"}, "in the gradient by hand");
    flags.add_number("--step", h, 1e-12, 1e-4, "h of the differences");
  };
  return run_main(argc, argv, "What does backward() compute, and how do you know that it is right?",
                  [&](const Options& options) { run(options, mistake, h); },
                  {.add_flags = add_flags});
}
