#include "engine/nn/loss.h"

namespace lockstep::nn {

std::size_t count_correct(const Tensor& logits, const Tensor& labels) {
  require_same_device("count_correct", {&logits, &labels});
  const Tensor guesses = Tensor::empty({logits.size(0)}, DType::int64, logits.device());
  require_same_shape("count_correct", guesses, labels);
  logits.backend().argmax_rows(logits.stream(), logits.matrix(), guesses.view());
  const auto guess = guesses.to_vector<std::int64_t>();
  const auto label = labels.to_vector<std::int64_t>();
  std::size_t num_correct = 0;
  for (std::size_t i = 0; i < guess.size(); ++i) num_correct += guess[i] == label[i];
  return num_correct;
}

}  // namespace lockstep::nn
