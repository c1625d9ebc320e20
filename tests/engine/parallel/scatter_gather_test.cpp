// Stages 1 and 4, run: rows and gradients that move. The numbers of the cut are tested with its
// plan.
#include "engine/parallel/data_parallel/steps.h"

#include <gtest/gtest.h>

#include "engine/autograd/ops/ops.h"
#include "tests/engine/parallel/function_module.h"
#include "tests/support/devices.h"
#include "tests/support/expect_error.h"
#include "tests/support/expect_gradients_match.h"

namespace lockstep::testing {
namespace {

using parallel::gather;
using parallel::scatter;

// Multiplies shard i by i + 2, so that each shard's gradient differs.
std::vector<Variable> scale_each(const std::vector<Variable>& shards) {
  std::vector<Variable> scaled;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    scaled.push_back(scale(shards[i], static_cast<double>(i) + 2));
  }
  return scaled;
}

TEST(Scatter, GatherIsItsReverseAlongEveryDimension) {
  const Tensor x = random_tensor({5, 4, 7}, 1);
  for (const std::size_t dim : {0, 1, 2}) {
    for (const std::size_t count : {1, 2, 3, 8}) {
      const auto shards = scatter(Variable(x), cpu_devices(count), dim);
      expect_close(gather(shards, {}, dim).value(), x, kExact);
    }
  }
}

TEST(Scatter, GradientMatchesCentralDifferences) {
  for (const std::size_t dim : {0, 1, 2}) {
    expect_gradients_match(
        [dim](const std::vector<Variable>& inputs) {
          return gather(scale_each(scatter(inputs[0], cpu_devices(3), dim)), {}, dim);
        },
        {random_leaf({4, 5, 3}, 2)});
  }
}

TEST(Scatter, RefusesWhatCannotBeCut) {
  const Variable x(random_tensor({2, 2, 2, 2}, 1));
  expect_error(ErrorCode::Shape, "[scatter] cannot split 4-D input along dim 5",
               [&] { scatter(x, cpu_devices(2), 5); });
  expect_error(ErrorCode::Shape, "cannot split 0-D input",
               [&] { scatter(Variable(Tensor::full({}, 1.0)), cpu_devices(2)); });
  expect_error(ErrorCode::Usage, "at least one device", [&] { scatter(x, {}); });
}

Variable leaf_on(const Shape& shape, std::uint64_t seed, int device) {
  return random_leaf(shape, seed, test_device(device));
}

TEST(Gather, ConcatenatesInOrderOntoTheOutputDevice) {
  const std::vector<Variable> parts{leaf_on({2, 3}, 1, 0), leaf_on({1, 3}, 2, 1),
                                    leaf_on({4, 3}, 3, 2)};
  const Variable whole = gather(parts, test_device(5));
  EXPECT_EQ(whole.device(), test_device(5));
  EXPECT_EQ(to_string(whole.shape()), "[7, 3]");
  expect_close(whole.value().rows(0, 2), parts[0].value(), kExact);
  expect_close(whole.value().rows(2, 3), parts[1].value(), kExact);
  expect_close(whole.value().rows(3, 7), parts[2].value(), kExact);
}

TEST(Gather, ScalarsBecomeAVectorOfTheirNumber) {
  std::vector<Variable> scalars;
  for (int i = 0; i < 3; ++i) {
    scalars.emplace_back(Tensor::full({}, i + 1, DType::float64, test_device(i)),
                         RequiresGrad::yes);
  }
  const Variable whole = gather(scalars, test_device());
  EXPECT_EQ(to_string(whole.shape()), "[3]");
  expect_close(whole.value(), {1, 2, 3}, kExact);
  whole.backward(Tensor::from(std::vector<double>{10, 20, 30}, {3}));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(to_string(scalars[i].grad().shape()), "[]");
    EXPECT_EQ(scalars[i].grad().item(), 10.0 * (static_cast<double>(i) + 1));
  }
}

TEST(Gather, RefusesPartsThatDoNotFit) {
  const Variable a = leaf_on({2, 3}, 1, 0);
  const auto refuses = [](ErrorCode code, const std::string& words,
                          const std::vector<Variable>& parts, std::size_t dim = 0) {
    expect_error(code, words, [&] { gather(parts, {}, dim); });
  };
  refuses(ErrorCode::Shape, "shapes [2, 3] and [2, 4] differ outside dim 0",
          {a, leaf_on({2, 4}, 1, 1)});
  refuses(ErrorCode::Shape, "shapes [2, 3] and [2] differ", {a, leaf_on({2}, 1, 1)});
  refuses(ErrorCode::Shape, "cannot gather 2-D tensors along dim 2", {a, a}, 2);
  refuses(ErrorCode::DType, "float32", {a, Variable(random_tensor({2, 3}, 1, DType::float32))});
  refuses(ErrorCode::Usage, "nothing to gather", {});
}

}  // namespace
}  // namespace lockstep::testing
