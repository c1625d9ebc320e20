#include "reference.h"

namespace lockstep::kernels {
namespace {

template <typename T>
class Optimizer : public ::testing::Test {};
TYPED_TEST_SUITE(Optimizer, Floating);

// torch.optim.SGD for one element, in double.
struct SgdElement {
  double weight, momentum = 0;
  bool started = false;

  void step(double grad, double rate, const SgdOptions& o) {
    double d = grad + o.weight_decay * weight;
    if (o.momentum != 0) {
      momentum = started ? o.momentum * momentum + (1 - o.dampening) * d : d;
      started = true;
      d = o.kind == SgdOptions::Kind::nesterov ? d + o.momentum * momentum : momentum;
    }
    weight -= rate * d;
  }
};

// torch.optim.AdamW for one element, in double.
struct AdamWElement {
  double weight, first = 0, second = 0;
  int t = 0;

  void step(double grad, double rate, const AdamWOptions& o) {
    ++t;
    weight *= 1 - rate * o.weight_decay;
    first = o.beta1 * first + (1 - o.beta1) * grad;
    second = o.beta2 * second + (1 - o.beta2) * grad * grad;
    const double corrected = std::sqrt(second) / std::sqrt(1 - std::pow(o.beta2, t)) + o.epsilon;
    weight -= rate / (1 - std::pow(o.beta1, t)) * first / corrected;
  }
};

struct Scalars {
  double rate = 0.1;
  std::int64_t step = 0;
  StepScalars view() { return {{&rate, DType::float64, 1}, {&step, DType::int64, 1}}; }
};

template <typename T>
void expect_sgd_matches(const SgdOptions& options) {
  for_thread_counts([&](Stream& stream) {
    std::vector<Array<T>> weights, grads, momenta;
    std::vector<std::vector<SgdElement>> reference;
    for (const std::size_t size : kSizes) {
      weights.push_back(random_array<T>(size, size));
      grads.push_back(Array<T>(size));
      momenta.push_back(Array<T>(size, T(0)));
      reference.emplace_back();
      for (const T value : weights.back().values) reference.back().push_back({double(value)});
    }
    Scalars scalars;
    for (int step = 0; step < 4; ++step) {  // which the calls count
      scalars.rate = 0.1 / (1 + step);
      std::vector<OptimizerParameter> parameters;
      for (std::size_t n = 0; n < weights.size(); ++n) {
        grads[n] = random_array<T>(weights[n].size(), 100 + n + std::size_t(step));
        parameters.push_back({weights[n].view(),
                              grads[n].view(),
                              options.momentum != 0 ? momenta[n].view() : TensorView{},
                              {}});
        for (std::size_t i = 0; i < grads[n].size(); ++i) {
          reference[n][i].step(double(grads[n][i]), scalars.rate, options);
        }
      }
      cpu().sgd(stream, parameters, scalars.view(), options);
    }
    for (std::size_t n = 0; n < weights.size(); ++n) {
      std::vector<double> expected;
      for (const SgdElement& element : reference[n]) expected.push_back(element.weight);
      expect_close(weights[n].values, expected, 2 * kTolerance<T>);
    }
  });
}

TYPED_TEST(Optimizer, SgdFollowsPyTorchsFormulas) {
  using Kind = SgdOptions::Kind;
  for (const SgdOptions& options :
       {SgdOptions{}, SgdOptions{.weight_decay = 0.1}, SgdOptions{.momentum = 0.9},
        SgdOptions{.momentum = 0.9, .dampening = 0.5, .weight_decay = 0.01},
        SgdOptions{.momentum = 0.9, .weight_decay = 0.01, .kind = Kind::nesterov}}) {
    SCOPED_TRACE(::testing::Message() << options.momentum << " " << options.dampening << " "
                                      << options.weight_decay << " " << int(options.kind));
    expect_sgd_matches<TypeParam>(options);
  }
}

TYPED_TEST(Optimizer, AdamWFollowsPyTorchsFormulas) {
  using T = TypeParam;
  const AdamWOptions options{.beta1 = 0.8, .beta2 = 0.99, .epsilon = 1e-6, .weight_decay = 0.1};
  for_thread_counts([&](Stream& stream) {
    std::vector<Array<T>> weights, grads, firsts, seconds;
    std::vector<std::vector<AdamWElement>> reference;
    for (const std::size_t size : kSizes) {
      weights.push_back(random_array<T>(size, size));
      grads.push_back(Array<T>(size));
      firsts.push_back(Array<T>(size));
      seconds.push_back(Array<T>(size));
      reference.emplace_back();
      for (const T value : weights.back().values) reference.back().push_back({double(value)});
    }
    Scalars scalars;
    for (int step = 0; step < 4; ++step) {  // which the calls count
      std::vector<OptimizerParameter> parameters;
      for (std::size_t n = 0; n < weights.size(); ++n) {
        grads[n] = random_array<T>(weights[n].size(), 100 + n + std::size_t(step));
        parameters.push_back(
            {weights[n].view(), grads[n].view(), firsts[n].view(), seconds[n].view()});
        for (std::size_t i = 0; i < grads[n].size(); ++i) {
          reference[n][i].step(double(grads[n][i]), scalars.rate, options);
        }
      }
      cpu().adamw(stream, parameters, scalars.view(), options);
    }
    for (std::size_t n = 0; n < weights.size(); ++n) {
      std::vector<double> expected;
      for (const AdamWElement& element : reference[n]) expected.push_back(element.weight);
      expect_close(weights[n].values, expected, 4 * kTolerance<T>);
    }
  });
}

// Beyond the smallest normal number a state would shrink by rounding errors only, and never end;
// each step on it would take a CPU ten times as long.
TYPED_TEST(Optimizer, AStateThatNoGradientFeedsBecomesZero) {
#if !defined(__x86_64__) && !defined(__aarch64__)
  GTEST_SKIP() << "subnormal numbers are flushed on x86-64 and AArch64";
#endif
  using T = TypeParam;
  constexpr T kSmallest = std::numeric_limits<T>::min();
  for_thread_counts([&](Stream& stream) {
    constexpr std::size_t kSize = 200'000;  // for several threads
    const Array<T> before = random_array<T>(kSize, 1);
    Array<T> weight = before, grad(kSize, T(0)), momentum(kSize, 8 * kSmallest);
    Array<T> first(kSize, 8 * kSmallest), second(kSize, 8 * kSmallest);
    Scalars scalars;
    scalars.step = 1;
    for (int step = 0; step < 40; ++step) {
      cpu().sgd(stream,
                std::vector<OptimizerParameter>{{weight.view(), grad.view(), momentum.view(), {}}},
                scalars.view(), {.momentum = 0.9});
      cpu().adamw(stream,
                  std::vector<OptimizerParameter>{
                      {weight.view(), grad.view(), first.view(), second.view()}},
                  scalars.view(), {.beta1 = 0.9, .beta2 = 0.9, .weight_decay = 0});
    }
    EXPECT_EQ(momentum.values, std::vector<T>(kSize, T(0)));
    EXPECT_EQ(first.values, std::vector<T>(kSize, T(0)));
    EXPECT_EQ(second.values, std::vector<T>(kSize, T(0)));
    EXPECT_EQ(weight.values, before.values);
    // Nobody else's arithmetic has changed.
    volatile T smallest = kSmallest;
    EXPECT_GT(smallest / 4, T(0));
  });
}

}  // namespace
}  // namespace lockstep::kernels
