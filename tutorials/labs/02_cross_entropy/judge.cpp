#include <algorithm>
#include <cmath>

#include "engine/autograd/ops/ops.h"
#include "tutorials/labs/host/tensors.h"
#include "tutorials/labs/judging/values.h"

namespace lab {
namespace {

json loss_case(const char* call, Numbers logits, Sizes labels, double grad_loss = 1) {
  const std::size_t classes = logits.size() / labels.size();
  return json{{"call", call},
              {"logits", std::move(logits)},
              {"labels", std::move(labels)},
              {"classes", classes},
              {"grad_loss", grad_loss}};
}

json draw_loss_case(lockstep::Rng& rng, const char* call) {
  const std::size_t rows = draw_between(rng, 2, 12);
  const std::size_t classes = draw_between(rng, 2, 10);
  Numbers logits(rows * classes);
  for (double& logit : logits) logit = rng.uniform(-6, 6);
  Sizes labels(rows);
  for (std::size_t& label : labels) label = draw_between(rng, 0, classes - 1);
  return loss_case(call, std::move(logits), std::move(labels), rng.uniform(1.5, 4));
}

Numbers softmax_of(const Numbers& row) {
  const double largest = *std::ranges::max_element(row);
  Numbers result;
  double sum = 0;
  for (const double x : row) sum += result.emplace_back(std::exp(x - largest));
  for (double& x : result) x /= sum;
  return result;
}

// Against the engine's own loss.
std::string judge_loss(const json& inputs, const json& answer) {
  const auto logits = inputs.at("logits").get<Numbers>();
  const auto labels = inputs.at("labels").get<std::vector<std::int64_t>>();
  const std::string call = inputs.at("call");
  const Numbers found = answer.get<Numbers>();
  if (call == "softmax") return differ("softmax", softmax_of(logits), found, 1e-12);
  const std::size_t classes = inputs.at("classes");
  const lockstep::Variable x = leaf(lockstep::Tensor::from(logits, {labels.size(), classes}));
  const lockstep::Variable loss =
      lockstep::cross_entropy(x, lockstep::Tensor::from(labels, {labels.size()}));
  if (call == "loss") return differ("the loss", {loss.value().item()}, found, 1e-9);
  lockstep::scale(loss, inputs.at("grad_loss")).backward();
  return differ("gradient of the logits", x.grad().to_vector<double>(), found, 1e-9);
}

}  // namespace

Lab cross_entropy_lab() {
  Lab lab{"02_cross_entropy", "Softmax, cross-entropy, and its gradient", {}};
  lab.checks = {
      visible("softmax_of_three", 10, "divide every exp by the sum of all of them",
              loss_case("softmax", {1, 2, 3}, {0}), judge_loss),
      visible("loss_of_two_rows", 15, "the loss is the mean over rows, not the sum",
              loss_case("loss", {1, 2, 3, 0, 0, 0}, {2, 1}), judge_loss),
      visible("gradient_of_two_rows", 15,
              "each row is softmax - onehot(label), divided by the number of rows",
              loss_case("backward", {1, 2, 3, 0, 0, 0}, {2, 1}), judge_loss),
      visible("large_logits_stay_finite", 10,
              "exp(1000) is infinite: subtract the row's largest logit first",
              std::vector<json>{loss_case("softmax", {1000, 999, -1000}, {1}),
                                loss_case("loss", {1000, 999, -1000}, {2})},
              judge_loss),
      hidden(
          "drawn_losses", 20, "logits are row-major: row i begins at i * num_classes", 3,
          [](lockstep::Rng& rng) { return draw_loss_case(rng, "loss"); }, judge_loss),
      hidden(
          "drawn_gradients", 30, "the chain rule: what arrives as grad_loss multiplies everything",
          3, [](lockstep::Rng& rng) { return draw_loss_case(rng, "backward"); }, judge_loss)};
  return lab;
}

}  // namespace lab
