#include <limits>

#include "engine/autograd/backward.h"
#include "engine/autograd/gradient_check.h"
#include "engine/autograd/ops/ops.h"
#include "tests/hostile/interface/misuse.h"

namespace lockstep::testing {
namespace {

using Binary = std::function<Variable(const Variable&, const Variable&)>;

const std::vector<Binary>& elementwise() {
  static const std::vector<Binary> all{
      add, subtract, multiply,
      [](const Variable& a, const Variable& b) { return mse_loss(a, b.value()); }};
  return all;
}

// Operations of two [n, n] matrices that read both again in backward.
const std::vector<Binary>& saving() {
  static const std::vector<Binary> all{
      multiply, [](const Variable& a, const Variable& b) { return matmul(a, b); },
      [](const Variable& a, const Variable& b) { return linear(a, b, {}); },
      [](const Variable& a, const Variable& b) { return mse_loss(a, b.value()); }};
  return all;
}

void use_undefined(Rng& rng) {
  Variable none;
  const Tensor one = Tensor::zeros({});
  const Variable x = leaf(rng, {2, 3});
  const std::vector<std::function<void()>> uses{
      [&] { none.value(); },
      [&] { none.shape(); },
      [&] { none.device(); },
      [&] { none.dtype(); },
      [&] { none.set_value(one); },
      [&] { none.requires_grad(); },
      [&] { none.set_requires_grad(RequiresGrad::yes); },
      [&] { none.is_leaf(); },
      [&] { none.node(); },
      [&] { none.output_index(); },
      [&] { none.grad(); },
      [&] { none.set_grad(one); },
      [&] { none.clear_grad(); },
      [&] { none.set_grad_slot({}); },
      [&] { none.grad_slot(); },
      [&] { none.on_grad_ready([](const Variable&) {}); },
      [&] { none.remove_grad_hook(0); },
      [&] { none.backward(); },
      [&] { none.detach(); },
      [&] { Variable{Tensor()}; },
      [&] { one_of(rng, elementwise())(none, x); },
      [&] { one_of(rng, elementwise())(x, none); },
      [&] { one_of(rng, saving())(none, x); },
      [&] { one_of(rng, saving())(x, none); },
      [&] { scale(none, 1); },
      [&] { activate(none, Activation::none); },
      [&] { gelu(none); },
      [&] { sum(none); },
      [&] { mean(none); },
      [&] { reshape(none, {}); },
      [&] { to(none, Device{}); },
      [&] { cross_entropy(none, one); },
      [&] { cross_entropy(x, {}); },
      [&] { mse_loss(x, {}); },
      [&] { dropout(none, 0.5, 0, 0); },
      [&] { batch_norm(none, {}); },
  };
  one_of(rng, uses)();
}

void unlike_inputs(Rng& rng) {
  const Shape shape = random_shape(rng);
  const DType dtype = random_float(rng);
  const Variable a = leaf(rng, shape, dtype);
  const std::vector<Variable> others{leaf(rng, other_shape(rng, shape), dtype),
                                     leaf(rng, shape, other_float(dtype)),
                                     leaf(rng, shape, dtype, {DeviceType::cpu, 1})};
  const Variable b = one_of(rng, others);
  const bool in_order = rng.below(2) == 0;
  one_of(rng, elementwise())(in_order ? a : b, in_order ? b : a);
}

void integer_inputs(Rng& rng) {
  const Variable x(Tensor::zeros({2, 2}, random_integer(rng)));
  const std::vector<std::function<void()>> uses{
      [&] { relu(x); },          [&] { sum(x); },         [&] { matmul(x, x); },
      [&] { linear(x, x, {}); }, [&] { multiply(x, x); }, [&] { mse_loss(x, x.value()); },
  };
  one_of(rng, uses)();
}

void matrices_that_do_not_fit(Rng& rng) {
  const std::size_t m = between(rng, 1, 5);
  const std::size_t k = between(rng, 1, 5);
  const Variable a = leaf(rng, {m, k});
  switch (rng.below(4)) {
    case 0:
      matmul(a, leaf(rng, {k + 1, m}));
      break;
    case 1:
      linear(a, leaf(rng, {m, k + 1}), {});
      break;
    case 2:
      linear(a, leaf(rng, {m, k}), leaf(rng, {m + 1}));
      break;
    default:
      matmul(a, leaf(rng, {k, m, 1}));
  }
}

void labels_that_do_not_fit(Rng& rng) {
  const std::size_t rows = between(rng, 1, 5);
  const std::size_t classes = between(rng, 1, 5);
  const Variable logits = leaf(rng, {rows, classes});
  const auto outside = static_cast<double>(classes + rng.below(99));
  switch (rng.below(4)) {
    case 0:
      cross_entropy(logits, Tensor::zeros({rows + 1}, DType::int64));
      break;
    case 1:
      cross_entropy(logits, Tensor::zeros({rows}, DType::int32));
      break;
    case 2:
      cross_entropy(logits, Tensor::full({rows}, rng.below(2) ? outside : -1.0, DType::int64));
      break;
    default:
      cross_entropy(logits, Tensor::zeros({rows}, DType::int64, {DeviceType::cpu, 2}));
  }
}

void batch_norm_that_cannot_be(Rng& rng) {
  const std::size_t features = between(rng, 1, 5);
  BatchNormArguments arguments;
  const Variable x = leaf(rng, {3, features});
  switch (rng.below(4)) {
    case 0:
      arguments.weight = leaf(rng, {features + 1});
      break;
    case 1:
      arguments.running_mean = Tensor::zeros({features + 1});
      break;
    case 2:
      arguments.statistics = kernels::BatchNormForward::Statistics::running;
      break;
    default:
      batch_norm(leaf(rng, {1, features}), arguments);
  }
  batch_norm(x, arguments);
}

void gradient_that_does_not_fit(Rng& rng) {
  const Shape shape{between(rng, 2, 5), between(rng, 1, 5)};
  Variable x = leaf(rng, shape);
  const std::vector<Tensor> unlike{random_values(rng, other_shape(rng, shape)),
                                   random_values(rng, shape, DType::float64),
                                   random_values(rng, shape, DType::float32, {DeviceType::cpu, 1})};
  const Tensor grad = one_of(rng, unlike);
  switch (rng.below(4)) {
    case 0:
      x.set_grad(grad);
      break;
    case 1:
      x.set_grad_slot(grad);
      break;
    case 2:
      scale(x, 2).backward(grad);
      break;
    default:
      scale(x, 2).backward();  // none, for more than one element
  }
}

void change_what_was_saved(Rng& rng) {
  const std::size_t n = between(rng, 1, 5);
  const Variable a = leaf(rng, {n, n});
  const Variable b = leaf(rng, {n, n});
  const Variable loss = sum(one_of(rng, saving())(a, b));
  const Tensor changed = (rng.below(2) == 0 ? a : b).value();
  const std::vector<std::function<void()>> changes{
      [&] { changed.fill(1); },
      [&] {
        changed.copy_from(random_values(rng, {n, n}));
      },
      [&] { changed.host<float>()[0] = 1; },
      [&] { changed.rows(0, 1).fill(1); },
      [&] { changed.reshape({n * n}).slice(n - 1, {1}).fill(2); },
  };
  one_of(rng, changes)();
  loss.backward();
}

void replace_what_is_no_leafs(Rng& rng) {
  Variable x = leaf(rng, {3});
  Variable y = scale(x, 2);
  const std::vector<std::function<void()>> uses{
      [&] { y.set_value(Tensor::zeros({3})); },
      [&] { y.set_requires_grad(RequiresGrad::no); },
      [&] { y.on_grad_ready([](const Variable&) {}); },
      [&] { x.on_grad_ready({}); },
      [&] { x.set_value({}); },
      [&] { x.set_value(Tensor::zeros({3}, random_integer(rng))); },
      [&] { Variable(Tensor::zeros({3}, random_integer(rng)), RequiresGrad::yes); },
      [&] {
        const Variable z = sum(y);
        x.set_value(random_values(rng, other_shape(rng, {3})));
        z.backward();
      },
  };
  one_of(rng, uses)();
}

void backward_that_cannot_be(Rng& rng) {
  const Variable x = leaf(rng, {2, 2});
  const std::vector<std::function<void()>> uses{
      [&] { Variable(x.value()).backward(); },
      [&] { x.detach().backward(); },
      [&] {
        const Variable y = sum(multiply(x, x));
        y.backward();
        y.backward();
      },
      [&] {
        const Variable h = scale(x, 2);
        sum(h).backward();
        sum(multiply(h, h)).backward();
      },
      [&] { on_backward_end([] {}); },
      [&] { check_gradients({}, {leaf(rng, {2}, DType::float64)}); },
      [&] { check_gradients([](const auto& in) { return sum(in[0]); }, {x}); },
      [&] { check_gradients([](const auto& in) { return sum(in[0]); }, {Variable()}); },
      [&] { check_gradients([](const auto&) { return Variable(); }, {}); },
  };
  one_of(rng, uses)();
}

}  // namespace

Misuses autograd_misuses() {
  return {
      {"an undefined variable", use_undefined},
      {"inputs that are unlike", unlike_inputs},
      {"inputs of integers", integer_inputs},
      {"matrices that do not fit", matrices_that_do_not_fit},
      {"labels that do not fit", labels_that_do_not_fit},
      {"a batch norm that cannot be", batch_norm_that_cannot_be},
      {"a gradient that does not fit", gradient_that_does_not_fit},
      {"a change of what was saved", change_what_was_saved},
      {"a replacement that cannot be", replace_what_is_no_leafs},
      {"a backward pass that cannot be", backward_that_cannot_be},
      {"a probability that is none",
       [](Rng& rng) {
         const double nan = std::numeric_limits<double>::quiet_NaN();
         dropout(leaf(rng, {2, 2}), one_of<double>(rng, {-0.1, 1.1, 1e300, nan}), 0, 0);
       }},
      {"a reshape to another number of elements",
       [](Rng& rng) {
         const Shape shape = random_shape(rng);
         reshape(leaf(rng, shape), other_shape(rng, shape));
       }},
      {"a device that does not exist",
       [](Rng& rng) { to(leaf(rng, random_shape(rng)), no_device(rng)); }},
      {"a product that wraps around",
       [](Rng& rng) {
         const std::size_t huge = (std::size_t{1} << 32) + rng.below(1000);
         const Variable rows(Tensor::empty({huge, 0}), RequiresGrad::yes);
         rng.below(2) == 0 ? matmul(rows, rows, Transpose::no, Transpose::yes)
                           : linear(rows, rows, {});
       }},
  };
}

}  // namespace lockstep::testing
