// Kernels in a CUDA graph: what a training step launches can be captured and run again.
#include "engine/runtime/step_graph.h"
#include "on_gpu.h"

namespace lockstep::kernels {
namespace {

class GpuCapture : public GpuTest {};

// A graph runs its step for real a few times before it captures it.
constexpr std::size_t kRuns = runtime::StepGraph::kNumWarmUps + 4;

TEST_F(GpuCapture, ReductionsAndOptimizerGiveTheSameWithAndWithoutAGraph) {
  const auto logits = random_grid<float>(1000, 10, 0, 1);
  const auto weights = random_array<float>(5000, 2), grads = random_array<float>(5000, 3);
  const auto run = [&](const auto& step_runner) {
    GridOnGpu<float> logits1(logits), p(Grid<float>(1000, 10));
    OnGpu<std::int64_t> labels(1000, std::int64_t{3}), step(1);
    OnGpu<double> rate(1, 0.1);
    OnGpu<float> loss(1), norm(1), sums(10), w(weights), g(grads), momentum(weights.size());
    const std::vector<OptimizerParameter> parameters{{w.view(), g.view(), momentum.view(), {}}};
    const std::vector<ConstTensorView> all{w.view(), g.view()};
    const auto body = [&] {
      gpu().softmax_cross_entropy_forward(gpu_stream(), logits1.view(), labels.view(),
                                          Reduction::mean, p.view(), loss.view());
      sum_columns(gpu(), gpu_stream(), p.view(), sums.view());
      gpu().sgd(gpu_stream(), parameters, {rate.view(), step.view()}, {.momentum = 0.9});
      gpu().norm(gpu_stream(), all, norm.view());
    };
    for (std::size_t i = 0; i < kRuns; ++i) {
      gpu().fill(gpu_stream(), rate.view(), 0.1 / double(i + 1));  // changes between launches
      gpu().fill(gpu_stream(), step.view(), double(i));
      step_runner(body);
    }
    auto results = w.values();
    for (OnGpu<float>* more : {&loss, &norm, &sums}) {
      for (const float value : more->values()) results.push_back(value);
    }
    return results;
  };
  const auto plain = run([](const auto& body) { body(); });
  runtime::StepGraph graph({Device{DeviceType::cuda, 0}});
  const auto captured = run([&](const auto& body) { graph.run(body); });
  EXPECT_TRUE(graph.is_captured());
  EXPECT_EQ(graph.num_nodes(), 5u);
  EXPECT_EQ(plain, captured);
}

}  // namespace
}  // namespace lockstep::kernels
