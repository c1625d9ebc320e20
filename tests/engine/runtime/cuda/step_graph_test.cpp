// Steps that are captured once and launched as a graph.
#include "engine/runtime/step_graph.h"

#include <optional>

#include "engine/runtime/storage.h"
#include "kernels/calls.h"
#include "tests/engine/runtime/cuda/cuda_test.h"

namespace lockstep::runtime {
namespace {

class StepGraphs : public CudaTest {};

constexpr std::size_t kSize = 1000;
constexpr std::size_t kRuns = StepGraph::kNumWarmUps + 5;

Tensor full(double value, Device device = kFirst) {
  return Tensor::full({kSize}, value, DType::float32, device);
}
std::vector<float> all(float value) {
  return std::vector<float>(kSize, value);
}
void add(const Tensor& a, const Tensor& b, const Tensor& y) {
  a.backend().add(a.stream(), {a.view(), b.view(), y.view()});
}

TEST_F(StepGraphs, EveryRunDoesTheStepOnce) {
  const Tensor sum = full(0), input = full(0);
  StepGraph graph({kFirst});
  std::size_t num_calls = 0;
  float expected = 0;
  for (std::size_t run = 0; run < kRuns; ++run) {
    input.fill(double(run + 1));
    graph.run([&] {
      ++num_calls;
      const Tensor twice = full(0);
      add(input, input, twice);
      add(sum, twice, sum);
    });
    expected += float(2 * (run + 1));
    EXPECT_EQ(values_of(sum), all(expected)) << "run " << run;
    EXPECT_EQ(graph.is_captured(), run >= StepGraph::kNumWarmUps);
    EXPECT_EQ(num_calls, std::min(run, StepGraph::kNumWarmUps) + 1);
  }
  EXPECT_EQ(graph.num_nodes(), 3u);
}

TEST_F(StepGraphs, MemoryOfACapturedStepIsItsOwn) {
  const Tensor result = full(0);
  const auto step = [&] {
    const Tensor a = full(3);
    const Tensor b = a.clone();
    add(a, b, result);
  };
  StepGraph graph({kFirst});
  while (!graph.is_captured()) graph.run(step);
  // Whatever is made between the launches must survive them.
  std::vector<Tensor> others;
  for (int i = 0; i < 20; ++i) {
    others.push_back(full(100 + i));
    graph.run(step);
    // A GPU that is full makes all pools give back what they keep free.
    if (i == 10) {
      const std::size_t too_much = physical_gpus()[0].memory_bytes * 2;
      EXPECT_THROW(Tensor::empty({too_much}, DType::uint8, kSibling), Error);
    }
  }
  EXPECT_EQ(values_of(result), all(6));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(values_of(others[std::size_t(i)]), all(float(100 + i)));
}

TEST_F(StepGraphs, SeveralDevicesForkFromTheFirst) {
  const std::vector<Device> devices{kFirst, kSibling, kOther};
  std::vector<Tensor> inputs, outputs;
  for (const Device device : devices) {
    inputs.push_back(full(0, device));
    outputs.push_back(full(0, device));
  }
  const Tensor total = full(0);
  StepGraph graph(devices);
  for (std::size_t run = 0; run < kRuns; ++run) {
    for (std::size_t i = 0; i < devices.size(); ++i) inputs[i].fill(double(run * 10 + i));
    graph.run([&] {
      total.fill(0);
      for (std::size_t i = 0; i < devices.size(); ++i) {
        add(inputs[i], inputs[i], outputs[i]);
        add(total, outputs[i].to(kFirst), total);
      }
    });
    float expected = 0;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      EXPECT_EQ(values_of(outputs[i]), all(float(2 * (run * 10 + i)))) << run;
      expected += float(2 * (run * 10 + i));
    }
    EXPECT_EQ(values_of(total), all(expected)) << run;
  }
}

TEST_F(StepGraphs, KeepTheOrderOfTheirDevicesWork) {
  const Tensor x = full(0, kFirst), y = full(0, kSibling), seen = full(0, kFirst);
  StepGraph graph({kFirst, kSibling});
  for (std::size_t run = 0; run < kRuns; ++run) {
    Gate gate;
    const bool is_held_up = run > 0 && run != StepGraph::kNumWarmUps;  // kernels, the graph: made
    if (is_held_up) gate.block(compute(kSibling));
    y.fill(double(run));  // not before the gate opens
    graph.run([&] {
      // The leader reads memory of its sibling; only the graph orders the two.
      x.backend().copy(compute(kFirst), {y.view(), seen.view()});
      compute(kSibling).wait(compute(kFirst).record());
      y.fill(-1);
    });
    const auto after = compute(kFirst).record();
    EXPECT_TRUE(!is_held_up || !after->wait(deadline_after(0.01))) << run;
    gate.open();
    EXPECT_EQ(values_of(seen), all(float(run))) << run;
    EXPECT_EQ(values_of(y), all(-1)) << run;
  }
}

TEST_F(StepGraphs, StreamsThatTheStepForksAreCapturedToo) {
  const Tensor x = full(0), y = full(0);
  StepGraph graph({kFirst});
  for (std::size_t run = 0; run < kRuns; ++run) {
    x.fill(double(run));
    graph.run([&] {
      const Tensor scratch = full(0);
      comm().wait(compute().record());
      x.backend().add(comm(), {x.view(), x.view(), scratch.view()});
      x.backend().copy(comm(), {scratch.view(), y.view()});
      scratch.storage()->record_use(comm());
      compute().wait(comm().record());
    });
    EXPECT_EQ(values_of(y), all(float(2 * run)));
  }
}

TEST_F(StepGraphs, TheCallAfterAnErrorCaptures) {
  const Tensor x = full(0);
  StepGraph graph({kFirst, kSibling});
  std::size_t num_calls = 0;
  const auto step = [&] {
    const Tensor y = full(1);
    add(x, y, x);
    if (++num_calls == 2 || num_calls == 4 || num_calls == 5) {
      fail(ErrorCode::Numeric, "step", "call {} fails", num_calls);
    }
  };
  graph.run(step);
  expect_error(ErrorCode::Numeric, "call 2", [&] { graph.run(step); });
  EXPECT_EQ(values_of(x), all(2));
  graph.run(step);
  for (const char* words : {"call 4", "call 5"}) {
    expect_error(ErrorCode::Numeric, words, [&] { graph.run(step); });
    EXPECT_FALSE(is_capturing_step());
    EXPECT_FALSE(graph.is_captured());
    EXPECT_EQ(values_of(x), all(3)) << "what was captured did not run";
    EXPECT_EQ(values_of(full(4, kSibling)), all(4));
  }
  graph.run(step);
  EXPECT_TRUE(graph.is_captured());
  EXPECT_EQ(values_of(x), all(4));
}

TEST_F(StepGraphs, AStepThatWaitsIsRefused) {
  const Tensor x = full(1);
  const auto passed = compute(kOther).record();
  passed->wait();
  const std::function<void()> steps[] = {
      [&] { compute().synchronize(); },
      [&] { passed->wait(); },
      [&] { values_of(x); },
      [&] { x.to(kCpu); },
      [&] { CUDA_CHECK(cudaDeviceSynchronize()); },
  };
  for (const auto& step : steps) {
    StepGraph graph({kFirst});
    const auto run = [&] {
      graph.run([&] {
        x.fill(5);
        step();
      });
    };
    for (std::size_t i = 0; i < StepGraph::kNumWarmUps; ++i) run();
    try {
      run();
      ADD_FAILURE() << "step " << (&step - steps) << " was captured";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("a step that is captured as a graph may not "
                                                     "wait for the device"));
      EXPECT_THAT(error.what(), ::testing::HasSubstr("without a graph"));
    }
    EXPECT_FALSE(is_capturing_step());
    x.fill(1);
    EXPECT_EQ(values_of(x), all(1));
  }
}

TEST_F(StepGraphs, TensorsMayOutliveTheGraphThatMadeThem) {
  const std::size_t before = logical_device(kFirst).own_memory().statistics().current_bytes;
  std::vector<Tensor> kept;
  for (int round = 0; round < 3; ++round) {
    std::optional<StepGraph> graph(std::in_place, std::vector<Device>{kFirst});
    Tensor result;
    for (std::size_t run = 0; run < kRuns; ++run) {
      graph->run([&] { result = full(round).clone(); });
    }
    graph.reset();  // perhaps while its last launch runs
    kept.push_back(result);
    for (int i = 0; i <= round; ++i) EXPECT_EQ(values_of(kept[std::size_t(i)]), all(float(i)));
  }
  kept.clear();
  EXPECT_EQ(logical_device(kFirst).own_memory().statistics().current_bytes, before);
}

TEST_F(StepGraphs, RefuseDevicesThatAreNoneOrStandTwice) {
  expect_error(ErrorCode::Usage, "at least one device", [] { StepGraph graph({}); });
  expect_error(ErrorCode::Usage, "a step is captured on CUDA devices, found", [] {
    StepGraph graph({kFirst, kCpu});
  });
  expect_error(ErrorCode::Usage, "cuda:1 appears twice", [] {
    StepGraph graph({kFirst, kSibling, kSibling});
  });
  expect_error(ErrorCode::Device, "cuda:9 does not exist", [] {
    StepGraph graph({Device{DeviceType::cuda, 9}});
  });
}

}  // namespace
}  // namespace lockstep::runtime
