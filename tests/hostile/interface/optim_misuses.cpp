#include <limits>

#include "engine/autograd/ops/ops.h"
#include "engine/optim/clip_grad_norm.h"
#include "engine/optim/optimizers.h"
#include "engine/optim/schedule.h"
#include "tests/hostile/interface/misuse.h"

namespace lockstep::testing {
namespace {

using optim::AdamW;
using optim::AdamWOptions;
using optim::Sgd;
using optim::SgdOptions;

double no_positive_number(Rng& rng) {
  return one_of<double>(rng, {-1e-300, -1, -std::numeric_limits<double>::infinity(),
                              std::numeric_limits<double>::quiet_NaN()});
}

void parameters_that_cannot_be(Rng& rng) {
  const Variable good = leaf(rng, {2, 2});
  Variable frozen = leaf(rng, {2, 2});
  frozen.set_requires_grad(RequiresGrad::no);
  const std::vector<std::vector<Variable>> all{{},           {Variable()},     {good, Variable()},
                                               {good, good}, {scale(good, 2)}, {good, frozen}};
  const std::vector<Variable> parameters = one_of(rng, all);
  if (rng.below(2) == 0) {
    Sgd sgd(parameters);
  } else {
    AdamW adamw(parameters);
  }
}

void options_that_cannot_be(Rng& rng) {
  const std::vector<Variable> one{leaf(rng, {2})};
  const double bad = no_positive_number(rng);
  const std::vector<std::function<void()>> uses{
      [&] { Sgd(one, {.learning_rate = bad}); },
      [&] { Sgd(one, {.momentum = bad}); },
      [&] { Sgd(one, {.weight_decay = bad}); },
      [&] { Sgd(one, {.kind = SgdOptions::Kind::nesterov}); },
      [&] { Sgd(one, {.momentum = 0.9, .dampening = 0.1, .kind = SgdOptions::Kind::nesterov}); },
      [&] { AdamW(one, {.learning_rate = bad}); },
      [&] { AdamW(one, {.beta1 = bad}); },
      [&] { AdamW(one, {.beta2 = bad}); },
      [&] { AdamW(one, {.beta1 = 1.0}); },
      [&] { AdamW(one, {.beta2 = 1e300}); },
      [&] { AdamW(one, {.epsilon = bad}); },
      [&] { AdamW(one, {.weight_decay = bad}); },
      [&] { Sgd(one).set_learning_rate(bad); },
  };
  one_of(rng, uses)();
}

// Backward after a step reads weights that are not those of its forward pass.
void step_before_backward(Rng& rng) {
  Variable w = leaf(rng, {2, 2});
  Sgd sgd({w}, {.learning_rate = 0.1});
  AdamW adamw({w});
  const Variable x = leaf(rng, {3, 2});
  const Variable loss = sum(linear(x, w, {}));
  w.set_grad(random_values(rng, {2, 2}));
  optim::Optimizer& optimizer = rng.below(2) == 0 ? static_cast<optim::Optimizer&>(sgd) : adamw;
  optimizer.step();
  loss.backward();
}

// A parameter whose tensor is replaced no longer fits the optimizer's state.
void parameter_of_another_size(Rng& rng) {
  Variable w = leaf(rng, {2, 2});
  AdamW adamw({w});
  w.set_grad(random_values(rng, {2, 2}));
  adamw.step();
  w.clear_grad();
  const Shape shape = other_shape(rng, {2, 2});
  w.set_value(random_values(rng, shape));
  w.set_grad(random_values(rng, shape));
  adamw.step();
}

}  // namespace

Misuses optim_misuses() {
  return {
      {"parameters that cannot be", parameters_that_cannot_be},
      {"options that cannot be", options_that_cannot_be},
      {"a step before backward", step_before_backward},
      {"a parameter of another size", parameter_of_another_size},
      {"a norm that is none",
       [](Rng& rng) { optim::clip_grad_norm({leaf(rng, {2})}, no_positive_number(rng)); }},
      {"a norm of an undefined variable",
       [](Rng& rng) {
         optim::clip_grad_norm({leaf(rng, {2}), Variable()}, 1);
       }},
      {"a norm that has to be finite",
       [](Rng& rng) {
         Variable x = leaf(rng, {2});
         x.set_grad(Tensor::full({2}, std::numeric_limits<double>::infinity()));
         optim::clip_grad_norm({x}, 1, optim::NonFiniteNorm::fail);
       }},
      {"a schedule that is none",
       [](Rng& rng) { optim::parse_schedule(garbage(rng), rng.below(99), rng.below(99)); }},
      {"a reduction every zero steps",
       [](Rng& rng) { optim::step_learning_rate(0.1, rng.below(99), 0, 0.5); }},
  };
}

}  // namespace lockstep::testing
