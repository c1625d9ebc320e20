#include "engine/nn/loss.h"
#include "kernels/calls.h"

namespace lockstep::nn {

std::size_t count_correct(const Tensor& logits, const Tensor& labels) {
  require_same_device("count_correct", {&logits, &labels});
  const Tensor guesses = Tensor::empty({logits.size(0)}, DType::int64, logits.device());
  require_same_shape("count_correct", guesses, labels);
  logits.backend().argmax_rows(logits.stream(), {logits.matrix(), guesses.view()});
  const auto guess = guesses.to_vector<std::int64_t>();
  const auto label = labels.to_vector<std::int64_t>();
  std::size_t num_correct = 0;
  for (std::size_t i = 0; i < guess.size(); ++i) num_correct += guess[i] == label[i];
  return num_correct;
}

namespace {

// Visits parents first, because train() and eval() also set a module's children.
template <typename Visit>
void visit(Module& module, const Visit& each) {
  each(module);
  for (const auto& [name, child] : module.children()) visit(*child, each);
}

}  // namespace

EvaluationScope::EvaluationScope(Module& model) : model_(model) {
  visit(model, [&](Module& module) { was_training_.push_back(module.is_training()); });
  model.eval();
}

EvaluationScope::~EvaluationScope() {
  auto next = was_training_.begin();
  visit(model_, [&](Module& module) { *next++ ? module.train() : module.eval(); });
}

double accuracy(Module& model, const Tensor& x, const Tensor& labels) {
  const NoGradScope no_grad;
  const EvaluationScope evaluation(model);
  const std::vector<Variable> parameters = model.parameters();
  const Device device = parameters.empty() ? x.device() : parameters[0].device();
  const Tensor logits = model(x.to(device)).value();
  return static_cast<double>(count_correct(logits, labels.to(logits.device()))) /
         static_cast<double>(labels.num_elements());
}

}  // namespace lockstep::nn
