// Stage 1, run: rows and gradients that move. The numbers of the cut are tested with its plan.
#include "engine/parallel/data_parallel/stages.h"

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

TEST(Scatter, PutsShardIOnDeviceI) {
  const Tensor x = random_tensor({7, 2}, 1);
  const std::vector<Device> devices = devices_of(test_device_type(), {0, 3, 5});
  const std::vector<Variable> shards = scatter(Variable(x), devices);
  ASSERT_EQ(shards.size(), 3u);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    EXPECT_EQ(to_string(shards[i].device()), to_string(devices[i]));
    expect_close(shards[i].value(), x.rows(3 * i, std::min<std::size_t>(3 * i + 3, 7)), kExact);
  }
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

TEST(Scatter, AnUnusedShardGetsZeros) {
  const Variable x = random_leaf({6}, 1);
  const auto shards = scatter(x, cpu_devices(3));
  sum(to(shards[1], {})).backward();
  expect_close(x.grad(), {0, 0, 1, 1, 0, 0}, kExact);
}

TEST(Scatter, RefusesWhatCannotBeCut) {
  const Variable x(random_tensor({2, 2, 2, 2}, 1));
  expect_error(ErrorCode::Shape, "[scatter] cannot split 4-D input along dim 5",
               [&] { scatter(x, cpu_devices(2), 5); });
  expect_error(ErrorCode::Shape, "cannot split 0-D input",
               [&] { scatter(Variable(Tensor::full({}, 1.0)), cpu_devices(2)); });
  expect_error(ErrorCode::Usage, "at least one device", [&] { scatter(x, {}); });
}

TEST(Scatter, CutsLabelsToo) {
  const Tensor labels = Tensor::from(std::vector<std::int64_t>{4, 5, 6, 7, 8}, {5});
  const std::vector<Tensor> shards = scatter(labels, cpu_devices(2));
  ASSERT_EQ(shards.size(), 2u);
  EXPECT_EQ(shards[1].to_vector<std::int64_t>(), std::vector<std::int64_t>({7, 8}));
  EXPECT_EQ(shards[1].device(), test_device(1));
}

}  // namespace
}  // namespace lockstep::testing
