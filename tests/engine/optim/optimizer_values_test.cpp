// SGD and AdamW against numbers from PyTorch 2.15, in double.
//
// All follow this program, with the optimizer that the test names:
//   w = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64, requires_grad=True)
//   for step in range(4):
//       w.grad = torch.tensor([0.3, -0.1, 0.7]) * (step + 1) - 0.5
//       optimizer.step()
#include <gtest/gtest.h>

#include <memory>

#include "engine/optim/optimizer.h"
#include "tests/support/expect_close.h"

namespace lockstep::optim {
namespace {

using lockstep::testing::expect_close;
using lockstep::testing::kFloat64;

constexpr auto kNesterov = SgdOptions::Kind::nesterov;

// Runs the program above and returns w.
template <typename Optimizer, typename Options>
Tensor after_four_steps(const Options& options) {
  const Variable w(Tensor::from(std::vector<double>{1.0, -2.0, 0.5}, {3}), RequiresGrad::yes);
  Optimizer optimizer({w}, options);
  for (int step = 0; step < 4; ++step) {
    std::vector<double> grad{0.3, -0.1, 0.7};
    for (double& value : grad) value = value * (step + 1) - 0.5;
    Variable(w).set_grad(Tensor::from(grad, {3}));
    optimizer.step();
  }
  return w.value();
}

template <typename Optimizer, typename Options>
void expect_values(const Options& options, const std::vector<double>& expected) {
  expect_close(after_four_steps<Optimizer>(options), expected, kFloat64);
}

TEST(OptimizerValues, AreThoseOfPyTorchsSgd) {
  // torch.optim.SGD([w])
  expect_values<Sgd>(SgdOptions{}, {0.999, -1.9970000000000003, 0.495});
  // torch.optim.SGD([w], lr=0.1, weight_decay=0.05)
  expect_values<Sgd>(SgdOptions{0.1, 0, 0, 0.05},
                     {0.8801507481249999, -1.6622927587499998, -0.007928997187500005});
  // torch.optim.SGD([w], lr=0.1, momentum=0.9)
  expect_values<Sgd>(SgdOptions{0.1, 0.9},
                     {0.8956800000000001, -1.3619599999999998, -0.3466799999999999});
  // torch.optim.SGD([w], lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.05)
  expect_values<Sgd>(SgdOptions{0.1, 0.9, 0.3, 0.05},
                     {0.910556743106875, -1.42098207925125, -0.12975695078531244});
  // torch.optim.SGD([w], lr=0.1, momentum=0.9, weight_decay=0.05, nesterov=True)
  expect_values<Sgd>(SgdOptions{0.1, 0.9, 0, 0.05, kNesterov},
                     {0.7454535869273126, -1.017146039755875, -0.7824122500159686});
}

TEST(OptimizerValues, AreThoseOfPyTorchsAdamW) {
  // torch.optim.AdamW([w])
  expect_values<AdamW>(AdamWOptions{},
                       {1.0000775797014598, -1.995909668125038, 0.4963090330439086});
  // torch.optim.AdamW([w], lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)
  expect_values<AdamW>(AdamWOptions{0.05, 0.8, 0.95, 1e-6, 0.1},
                       {0.9745040570018582, -1.760306971430458, 0.30297912053025905});
}

// The second parameter has a gradient in steps 1, 2 and 4 only:
//   a, b = (torch.tensor([x], dtype=torch.float64, requires_grad=True) for x in (1.0, 2.0))
//   for s in range(5):
//       a.grad = torch.tensor([0.5 + s])
//       b.grad = torch.tensor([1.0 - s]) if s in (1, 2, 4) else None
//       optimizer.step()
template <typename Optimizer, typename Options>
std::vector<double> with_a_parameter_that_is_skipped(const Options& options) {
  Variable a(Tensor::full({1}, 1.0, DType::float64), RequiresGrad::yes);
  Variable b(Tensor::full({1}, 2.0, DType::float64), RequiresGrad::yes);
  Optimizer optimizer({a, b}, options);
  for (int s = 0; s < 5; ++s) {
    a.set_grad(Tensor::full({1}, 0.5 + s, DType::float64));
    b.clear_grad();
    if (s == 1 || s == 2 || s == 4) b.set_grad(Tensor::full({1}, 1.0 - s, DType::float64));
    optimizer.step();
  }
  return {a.value().item(), b.value().item()};
}

TEST(OptimizerValues, ASkippedParameterCountsItsOwnSteps) {
  // torch.optim.SGD([a, b], lr=0.1, momentum=0.9, dampening=0.3)
  expect_close(with_a_parameter_that_is_skipped<Sgd>(SgdOptions{0.1, 0.9, 0.3}),
               std::vector<double>{-0.8206000000000002, 2.343}, kFloat64);
  // torch.optim.AdamW([a, b], lr=0.05)
  expect_close(with_a_parameter_that_is_skipped<AdamW>(AdamWOptions{0.05}),
               std::vector<double>{0.762271116761267, 2.073583773017954}, kFloat64);
}

}  // namespace
}  // namespace lockstep::optim
