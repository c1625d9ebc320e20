#include "reference.h"

namespace lockstep::kernels {
namespace {

template <typename T>
class Optimizer : public ::testing::Test {};
TYPED_TEST_SUITE(Optimizer, Floating);

// Few, as many as one launch of a GPU takes, and more; 8 are of kSizes.
constexpr std::size_t kCounts[] = {0, 1, 8, 16, 17, 300};

std::size_t size_of(std::size_t tensor, std::size_t count) {
  return count == 8 ? kSizes[tensor] : tensor * 53 % 301;
}

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
  OnDevice<double> rate{std::size_t{1}, 0.1};
  OnDevice<std::int64_t> step{std::size_t{1}};
  StepScalars view() const { return {rate.view(), step.view()}; }
};

// One parameter with its state, on the device and as elements in double.
template <typename T, typename Element>
struct Parameter {
  Parameter(std::size_t size, std::size_t number)
      : weight(random_values<T>(size, number), number % 3 == 2),
        grad(size),
        first(size),
        second(size) {
    for (const T value : weight.values()) elements.push_back({double(value)});
  }
  OnDevice<T> weight, grad, first, second;
  std::vector<Element> elements;
};

// Four steps, which the calls count, by run(stream, parameters, scalars), of tensors on both sides
// of what one launch takes.
template <typename T, typename Element, typename Options, typename Run>
void expect_formulas(const Options& options, const Run& run) {
  for (const std::size_t count : kCounts) {
    SCOPED_TRACE(::testing::Message() << count << " tensors");
    for_thread_counts([&](Stream& stream) {
      std::vector<std::unique_ptr<Parameter<T, Element>>> tensors;
      std::vector<OptimizerParameter> views;
      for (std::size_t n = 0; n < count; ++n) {
        tensors.push_back(std::make_unique<Parameter<T, Element>>(size_of(n, count), n));
        auto& p = *tensors.back();
        views.push_back({p.weight.view(), p.grad.view(), p.first.view(), p.second.view()});
      }
      const Scalars scalars;
      for (int step = 0; step < 4; ++step) {
        const double rate = 0.1 / (1 + step);
        tested().fill(stream, {scalars.rate.view(), rate});
        for (auto& tensor : tensors) {
          const auto grad = random_values<T>(tensor->elements.size(), 100 + std::size_t(step));
          tested().copy(stream, {OnDevice<T>(grad).view(), tensor->grad.view()});
          for (std::size_t i = 0; i < grad.size(); ++i) {
            tensor->elements[i].step(double(grad[i]), rate, options);
          }
        }
        run(stream, views, scalars.view());
      }
      EXPECT_EQ(scalars.step.value(), 4);
      for (auto& tensor : tensors) {
        std::vector<double> expected;
        for (const Element& element : tensor->elements) expected.push_back(element.weight);
        expect_close(tensor->weight.values(), expected, 4 * kTolerance<T>);
      }
    });
  }
}

TYPED_TEST(Optimizer, SgdFollowsPyTorchsFormulas) {
  using Kind = SgdOptions::Kind;
  for (const SgdOptions& options :
       {SgdOptions{}, SgdOptions{.weight_decay = 0.1}, SgdOptions{.momentum = 0.9},
        SgdOptions{.momentum = 0.9, .dampening = 0.5, .weight_decay = 0.01},
        SgdOptions{.momentum = 0.9, .weight_decay = 0.01, .kind = Kind::nesterov}}) {
    SCOPED_TRACE(::testing::Message() << options.momentum << " " << options.dampening << " "
                                      << options.weight_decay << " " << int(options.kind));
    expect_formulas<TypeParam, SgdElement>(
        options, [&](Stream& stream, std::vector<OptimizerParameter> views, StepScalars scalars) {
          for (OptimizerParameter& view : views) {
            view.second = {};
            if (options.momentum == 0) view.first = {};
          }
          tested().sgd(stream, {views, scalars, options});
        });
  }
}

TYPED_TEST(Optimizer, AdamWFollowsPyTorchsFormulas) {
  const AdamWOptions options{.beta1 = 0.8, .beta2 = 0.99, .epsilon = 1e-6, .weight_decay = 0.1};
  expect_formulas<TypeParam, AdamWElement>(
      options, [&](Stream& stream, const auto& views, StepScalars scalars) {
        tested().adamw(stream, {views, scalars, options});
      });
}

// With beta1 = 0 the mean is the gradient itself. Its difference from a large mean would lose it.
TYPED_TEST(Optimizer, AdamWStartsTheMeanFromItsNearerEndAsPyTorchDoes) {
  using T = TypeParam;
  for_thread_counts([&](Stream& stream) {
    const OnDevice<T> weight(5), grad(5, T(1)), first(5, static_cast<T>(100 / kTolerance<T>)),
        second(5);
    const Scalars scalars;
    const std::vector<OptimizerParameter> one{
        {weight.view(), grad.view(), first.view(), second.view()}};
    tested().adamw(stream, {one, scalars.view(), {.beta1 = 0, .beta2 = 0.99}});
    EXPECT_EQ(first.values(), std::vector<T>(5, T(1)));
  });
}

TYPED_TEST(Optimizer, ClipReachesEveryTensorAndNoOther) {
  using T = TypeParam;
  for (const std::size_t count : kCounts) {
    for (const double norm : {0.0, 1.0, 3.7}) {
      std::vector<std::unique_ptr<OnDevice<T>>> tensors;
      std::vector<std::vector<double>> expected;
      std::vector<TensorView> views;
      for (std::size_t n = 0; n < count; ++n) {
        const auto values = random_values<T>(size_of(n, count), n);
        tensors.push_back(std::make_unique<OnDevice<T>>(values, n % 3 == 2));
        views.push_back(tensors[n]->view());
        if (n % 5 == 4 && !values.empty()) --views[n].num_elements;  // leaves the last one alone
        expected.emplace_back(values.begin(), values.end());
        const double factor = norm > 2 ? 2 / (norm + 1e-6) : 1;
        for (std::size_t i = 0; i < views[n].num_elements; ++i) expected[n][i] *= factor;
      }
      const OnDevice<double> on_device(1, norm);
      tested().clip(stream_with(2), {views, on_device.view(), 2});
      for (std::size_t n = 0; n < count; ++n) expect_close(tensors[n]->values(), expected[n]);
    }
  }
}

// Beyond the smallest normal number a state would shrink by rounding errors only, and never end;
// each step on it would take a CPU ten times as long.
TYPED_TEST(Optimizer, AStateThatNoGradientFeedsBecomesZero) {
#if !defined(__x86_64__) && !defined(__aarch64__)
  GTEST_SKIP() << "subnormal numbers are flushed on x86-64 and AArch64";
#endif
  LOCKSTEP_CPU_ONLY("a GPU takes subnormal numbers as fast as others");
  using T = TypeParam;
  constexpr T kSmallest = std::numeric_limits<T>::min();
  constexpr std::size_t kSize = 200'000;  // for several threads
  const std::vector<T> zeros(kSize), before = random_values<T>(kSize, 1);
  for_thread_counts([&](Stream& stream) {
    const OnDevice<T> weight(before), grad(zeros), momentum(kSize, 8 * kSmallest);
    const OnDevice<T> first(kSize, 8 * kSmallest), second(kSize, 8 * kSmallest);
    const Scalars scalars;
    using One = std::vector<OptimizerParameter>;
    for (int step = 0; step < 40; ++step) {
      tested().sgd(stream, {One{{weight.view(), grad.view(), momentum.view(), {}}},
                            scalars.view(),
                            {.momentum = 0.9}});
      tested().adamw(stream, {One{{weight.view(), grad.view(), first.view(), second.view()}},
                              scalars.view(),
                              {.beta1 = 0.9, .beta2 = 0.9, .weight_decay = 0}});
    }
    for (const auto* state : {&momentum, &first, &second}) EXPECT_EQ(state->values(), zeros);
    EXPECT_EQ(weight.values(), before);
    // Nobody else's arithmetic has changed.
    volatile T smallest = kSmallest;
    EXPECT_GT(smallest / 4, T(0));
  });
}

}  // namespace
}  // namespace lockstep::kernels
