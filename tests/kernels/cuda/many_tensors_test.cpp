#include <memory>

#include "on_gpu.h"

namespace lockstep::kernels {
namespace {

template <typename T>
using GpuManyTensors = TypedGpuTest<T>;
TYPED_TEST_SUITE(GpuManyTensors, Floating);

// Tensors of many sizes on both sides; every third one on the GPU is not aligned.
template <typename T>
struct Tensors {
  std::vector<Array<double>> reference;
  std::vector<Array<T>> values;
  std::vector<std::unique_ptr<OnGpu<T>>> on_gpu;

  Tensors(std::size_t count, std::uint64_t seed, double low = -2) {
    for (std::size_t n = 0; n < count; ++n) {
      const std::size_t size = count == 7 ? kGpuSizes[n] : n * 53 % 3001;
      values.push_back(random_array<T>(size, seed * 1000 + n));
      for (T& value : values[n].values) value = std::max(value, static_cast<T>(low));
      reference.push_back(in_double(values[n]));
      on_gpu.push_back(std::make_unique<OnGpu<T>>(values[n], n % 3 == 2));
    }
  }
  std::size_t size() const { return values.size(); }
  void expect_equal(double tolerance) {
    for (std::size_t n = 0; n < size(); ++n) {
      expect_close(on_gpu[n]->values(), reference[n].values, tolerance);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
};

// Few, as many as one launch takes, and more.
constexpr std::size_t kCounts[] = {0, 1, 7, 16, 17, 100, 300};

struct Scalars {
  Array<double> rate{1};
  Array<std::int64_t> step{1};
  OnGpu<double> gpu_rate{std::size_t{1}};
  OnGpu<std::int64_t> gpu_step{std::size_t{1}};
  StepScalars on_cpu() { return {rate.view(), step.view()}; }
  StepScalars on_gpu() { return {gpu_rate.view(), gpu_step.view()}; }
  void set(double new_rate, std::int64_t new_step) {
    rate[0] = new_rate;
    step[0] = new_step;
    gpu().fill(gpu_stream(), gpu_rate.view(), new_rate);
    gpu().fill(gpu_stream(), gpu_step.view(), static_cast<double>(new_step));
  }
  void expect_counted(std::int64_t steps) {
    EXPECT_EQ(step[0], steps);
    EXPECT_EQ(gpu_step.values()[0], steps);
  }
};

TYPED_TEST(GpuManyTensors, SgdEqualsTheCpuOverSeveralSteps) {
  using T = TypeParam;
  using Kind = SgdOptions::Kind;
  for (const std::size_t count : kCounts) {
    for (const SgdOptions& options :
         {SgdOptions{}, SgdOptions{.weight_decay = 0.1}, SgdOptions{.momentum = 0.9},
          SgdOptions{.momentum = 0.9, .dampening = 0.2, .weight_decay = 0.01},
          SgdOptions{.momentum = 0.9, .weight_decay = 0.01, .kind = Kind::nesterov}}) {
      Tensors<T> weights(count, 1), grads(count, 2), momenta(count, 3);
      std::vector<OptimizerParameter> on_cpu, on_gpu;
      for (std::size_t n = 0; n < count; ++n) {
        momenta.reference[n].values.assign(momenta.reference[n].size(), 0);
        gpu().fill(gpu_stream(), momenta.on_gpu[n]->view(), 0);
        on_cpu.push_back({weights.reference[n].view(),
                          grads.reference[n].view(),
                          momenta.reference[n].view(),
                          {}});
        on_gpu.push_back({weights.on_gpu[n]->view(),
                          grads.on_gpu[n]->view(),
                          options.momentum != 0 ? momenta.on_gpu[n]->view() : TensorView{},
                          {}});
      }
      Scalars scalars;
      for (int step = 0; step < 3; ++step) {
        scalars.set(0.1 / (1 + step), step);
        cpu().sgd(cpu_stream(), on_cpu, scalars.on_cpu(), options);
        gpu().sgd(gpu_stream(), on_gpu, scalars.on_gpu(), options);
        scalars.expect_counted(step + 1);
      }
      weights.expect_equal(4 * kTolerance<T>);
      if (options.momentum != 0) momenta.expect_equal(4 * kTolerance<T>);
      if (this->HasFatalFailure()) return;
    }
  }
}

TYPED_TEST(GpuManyTensors, AdamWEqualsTheCpuFromTheFirstStepToTheHundredThousandth) {
  using T = TypeParam;
  for (const std::size_t count : kCounts) {
    Tensors<T> weights(count, 1), grads(count, 2), first(count, 3), second(count, 4, 0.01);
    std::vector<OptimizerParameter> on_cpu, on_gpu;
    for (std::size_t n = 0; n < count; ++n) {
      on_cpu.push_back({weights.reference[n].view(), grads.reference[n].view(),
                        first.reference[n].view(), second.reference[n].view()});
      on_gpu.push_back({weights.on_gpu[n]->view(), grads.on_gpu[n]->view(), first.on_gpu[n]->view(),
                        second.on_gpu[n]->view()});
    }
    Scalars scalars;
    for (const std::int64_t step : {0, 1, 2, 10, 999, 100'000}) {
      scalars.set(0.01, step);
      cpu().adamw(cpu_stream(), on_cpu, scalars.on_cpu(), {});
      gpu().adamw(gpu_stream(), on_gpu, scalars.on_gpu(), {});
      scalars.expect_counted(step + 1);
    }
    // A moment of 0.01 in the first step: the update is about 10 lr, its rounding 30 times that
    // of 1.
    const double tolerance = sizeof(T) == 4 ? 2e-5 : 1e-12;
    weights.expect_equal(tolerance);
    first.expect_equal(tolerance);
    second.expect_equal(tolerance);
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(GpuManyTensors, ClipReachesEveryTensorAndNoOther) {
  using T = TypeParam;
  for (const std::size_t count : kCounts) {
    Tensors<T> tensors(count, 1);
    std::vector<TensorView> on_cpu, on_gpu;
    for (std::size_t n = 0; n < count; ++n) {
      on_cpu.push_back(tensors.reference[n].view());
      on_gpu.push_back(tensors.on_gpu[n]->view());
      if (n % 5 == 4) {  // leaves the last element alone
        on_cpu.back().num_elements -= on_cpu.back().num_elements > 0;
        on_gpu.back().num_elements = on_cpu.back().num_elements;
      }
    }
    for (const double norm : {0.0, 1.0, 3.7}) {
      Array<double> norm2(std::vector<double>{norm});
      OnGpu<double> norm1(norm2);
      cpu().clip(cpu_stream(), on_cpu, norm2.view(), 2);
      gpu().clip(gpu_stream(), on_gpu, norm1.view(), 2);
      tensors.expect_equal(kTolerance<T>);
    }
    if (this->HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace lockstep::kernels
