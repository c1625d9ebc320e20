// Operations on sequences: gradients against central differences in double, the two ways of
// attention against each other, and errors.
#include <gtest/gtest.h>

#include "engine/autograd/ops/sequences.h"
#include "tests/support/devices.h"
#include "tests/support/expect_error.h"
#include "tests/support/expect_gradients_match.h"

namespace lockstep::testing {
namespace {

using Variables = std::vector<Variable>;

Tensor tokens(const std::vector<std::int64_t>& values, const Shape& shape) {
  return Tensor::from(values, shape, test_device());
}

TEST(SequenceGradients, Embedding) {
  const Tensor ids = tokens({0, 4, 0, 1, 0, 3}, {2, 3});
  expect_gradients_match([&](const Variables& in) { return embedding(ids, in[0], in[1]); },
                         {random_leaf({5, 4}, 1), random_leaf({4, 4}, 2)});
  expect_gradients_match([&](const Variables& in) { return embedding(ids, in[0]); },
                         {random_leaf({5, 4}, 1)});
}

TEST(SequenceGradients, LayerNorm) {
  expect_gradients_match([](const Variables& in) { return layer_norm(in[0], in[1], in[2]); },
                         {random_leaf({2, 3, 7}, 1), random_leaf({7}, 2), random_leaf({7}, 3)});
}

TEST(SequenceGradients, Attention) {
  for (const std::size_t heads : {1u, 3u}) {
    expect_gradients_match([&](const Variables& in) { return attention(in[0], heads); },
                           {random_leaf({2, 5, 18}, 1)});
    expect_gradients_match([&](const Variables& in) { return plain_attention(in[0], heads); },
                           {random_leaf({2, 5, 18}, 1)});
  }
}

TEST(SequenceOps, AttentionInBlocksIsThePlainOne) {
  const Tensor qkv = random_tensor({2, 150, 96}, 1, DType::float64);
  const Tensor grad = random_tensor({2, 150, 32}, 2, DType::float64);
  const Variable a(qkv.clone(), RequiresGrad::yes);
  const Variable b(qkv.clone(), RequiresGrad::yes);
  const Variable in_blocks = attention(a, 2);
  const Variable plain = plain_attention(b, 2);
  expect_close(in_blocks.value(), plain.value(), kFloat64);
  in_blocks.backward(grad);
  plain.backward(grad);
  expect_close(a.grad(), b.grad(), kFloat64);
}

TEST(SequenceOps, LogitsThatAreConsumedGiveTheSameGradient) {
  const Tensor labels = tokens({1, 0, 3}, {3});
  Variable x = random_leaf({3, 4}, 1);
  Variable weight = random_leaf({5, 4}, 2);
  std::vector<Tensor> gradients;
  for (const Logits use : {Logits::keep, Logits::consume}) {
    x.clear_grad();
    weight.clear_grad();
    const Variable logits = linear(x, weight, {});
    cross_entropy(logits, labels, Reduction::sum, use).backward();
    gradients.push_back(x.grad());
    gradients.push_back(weight.grad());
  }
  expect_close(gradients[2], gradients[0], kExact);
  expect_close(gradients[3], gradients[1], kExact);
}

TEST(SequenceOps, MistakesAreNamed) {
  const Variable qkv(random_tensor({2, 4, 18}, 1));
  expect_error(ErrorCode::Shape, "4 heads do not divide 6 channels", [&] { attention(qkv, 4); });
  expect_error(ErrorCode::Shape, "expected queries, keys and values [batch, length, 3 * channels]",
               [&] {
                 attention(reshape(qkv, {8, 18}), 2);
               });
  expect_error(ErrorCode::Shape, "a head may have 128 channels at most; 1 heads of 129", [&] {
    plain_attention(Variable(random_tensor({1, 2, 387}, 1)), 1);
  });
  const Variable weight(random_tensor({5, 6}, 1));
  expect_error(ErrorCode::DType, "tokens must be int64, found float64", [&] {
    embedding(random_tensor({1, 2}, 1), weight);
  });
  expect_error(ErrorCode::Shape, "sequences of 3 tokens are longer than the 2 positions", [&] {
    embedding(tokens({1, 2, 3}, {1, 3}), weight, Variable(random_tensor({2, 6}, 1)));
  });
  expect_error(ErrorCode::Shape, "does not fit weight [5, 6]",
               [&] { layer_norm(qkv, weight, weight); });
}

}  // namespace
}  // namespace lockstep::testing
