#include "engine/autograd/ops/ops.h"
#include "tutorials/labs/host/tensors.h"
#include "tutorials/labs/judging/values.h"

namespace lab {
namespace {

constexpr double kLinearTolerance = 1e-9;

json example_layer() {
  return json{{"x", {{1, 2, 3}, {4, 5, 6}}},
              {"weight", {{1, 0, -1}, {2, 1, 0}}},
              {"bias", {10, 20}},
              {"grad_y", {{1, 10}, {100, 1000}}},
              {"times", 1}};
}

json draw_layer(lockstep::Rng& rng, std::size_t batch, std::size_t in, std::size_t out, int times) {
  return json{{"x", draw_matrix(rng, batch, in)},
              {"weight", draw_matrix(rng, out, in)},
              {"bias", draw_numbers(rng, out)},
              {"grad_y", draw_matrix(rng, batch, out)},
              {"times", times}};
}

// The gradients of the engine's own layer.
json engine_gradients(const json& inputs) {
  const lockstep::Variable x = leaf(matrix_of(inputs.at("x")));
  const lockstep::Variable weight = leaf(matrix_of(inputs.at("weight")));
  const lockstep::Variable bias = leaf(vector_of(inputs.at("bias")));
  lockstep::Variable y = x;
  for (int i = 0; i < inputs.at("times").get<int>(); ++i) {
    y = lockstep::linear(y, weight, bias);
  }
  y.backward(matrix_of(inputs.at("grad_y")));
  return json{{"grad_x", numbers_of(x.grad())},
              {"grad_weight", numbers_of(weight.grad())},
              {"grad_bias", numbers_of(bias.grad())}};
}

// The gradients of a layer's three leaves.
std::string judge_gradients(const json& inputs, const json& answer) {
  const json expected = engine_gradients(inputs);
  for (const char* name : {"grad_x", "grad_weight", "grad_bias"}) {
    const std::string wrong = differ(name, expected.at(name).get<Numbers>(),
                                     answer.at(name).get<Numbers>(), kLinearTolerance);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

// One function: what its gradient is of has the gradient's shape.
json example_call(const char* name) {
  json inputs = example_layer();
  inputs["call"] = name;
  return inputs;
}

std::string judge_call(const json& inputs, const json& answer) {
  const std::string name = inputs.at("call");
  const json& of = inputs.at(name.substr(5));
  const Sizes expected = of.at(0).is_array() ? Sizes{of.size(), of.at(0).size()} : Sizes{of.size()};
  const Sizes found = answer.at("shape").get<Sizes>();
  const std::string wrong = differ("shape of " + name, expected, found);
  if (!wrong.empty()) return wrong;
  return differ(name, engine_gradients(inputs).at(name).get<Numbers>(),
                answer.at("values").get<Numbers>(), kLinearTolerance);
}

}  // namespace

Lab linear_backward_lab() {
  Lab lab{"01_linear_backward", "Autograd: the gradients of a linear layer", {}};
  lab.checks = {
      visible("gradient_of_x", 15,
              "dL/dx = dL/dy * W: [batch, out] times [out, in], nothing transposed",
              example_call("grad_x"), judge_call),
      visible("gradient_of_the_weight", 15,
              "dL/dW has the shape of W, [out, in]: it is (dL/dy)^T * x",
              example_call("grad_weight"), judge_call),
      visible("gradient_of_the_bias", 15,
              "every row of the batch adds the same b, so its gradient is a sum over rows",
              example_call("grad_bias"), judge_call),
      {"drawn_shapes", Shown::hidden, 35,
       "a shape that fits by chance in a square layer does not in one of 5 inputs and 2 outputs",
       [](lockstep::Rng& rng) {
         std::vector<json> cases;
         for (int i = 0; i < 4; ++i) {
           const std::size_t in = draw_between(rng, 2, 9);
           cases.push_back(draw_layer(rng, draw_between(rng, 2, 9), in, in + 1, 1));
         }
         cases.push_back(draw_layer(rng, 1, 4, 3, 1));
         return cases;
       },
       judge_gradients},
      hidden(
          "a_layer_applied_twice", 20,
          "return each gradient fresh and do not add: the engine adds what arrives at a leaf twice",
          1,
          [](lockstep::Rng& rng) {
            const std::size_t size = draw_between(rng, 3, 6);
            return draw_layer(rng, size + 2, size, size, 2);
          },
          judge_gradients)};
  return lab;
}

}  // namespace lab
