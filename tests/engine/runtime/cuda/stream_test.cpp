// Streams and events of a CUDA device, among each other and with the CPU's.
#include "engine/runtime/stream.h"

#include <atomic>
#include <thread>

#include "engine/runtime/step_graph.h"
#include "engine/trace/span.h"
#include "tests/engine/runtime/cuda/cuda_test.h"

namespace lockstep::runtime {
namespace {

class CudaStreams : public CudaTest {};

TEST_F(CudaStreams, AnEventPassesAfterTheWorkBefore) {
  Gate gate;
  const auto before = compute().record();
  EXPECT_TRUE(before->wait());
  EXPECT_TRUE(before->has_passed());
  gate.block(compute());
  const auto event = compute().record();
  EXPECT_FALSE(event->has_passed());
  EXPECT_FALSE(event->wait(Clock::now()));
  EXPECT_FALSE(event->wait(deadline_after(0.01)));
  gate.open();
  EXPECT_TRUE(event->wait(deadline_after(60)));
  EXPECT_TRUE(event->has_passed());
  EXPECT_TRUE(event->wait());
  EXPECT_TRUE(event->wait(Clock::now())) << "what has passed needs no time";
}

TEST_F(CudaStreams, EveryDeviceHasThreeIndependentOnes) {
  Gate gate;
  gate.block(compute(kFirst));
  for (const Device device : {kFirst, kSibling}) {
    LogicalDevice& logical = logical_device(device);
    EXPECT_TRUE(logical.comm_stream().record()->wait(deadline_after(60)));
    EXPECT_TRUE(logical.copy_stream().record()->wait(deadline_after(60)));
  }
  EXPECT_TRUE(compute(kSibling).record()->wait(deadline_after(60)));
  EXPECT_FALSE(compute(kFirst).record()->has_passed());
}

TEST_F(CudaStreams, WorkAfterAWaitRunsAfterTheEvent) {
  for (const Device other : {kFirst, kSibling, kOther}) {
    const Tensor x = Tensor::full({1000}, 1, DType::float32, kFirst);
    const Tensor y = Tensor::zeros({1000}, DType::float32, kFirst);
    x.fill(0);
    x.backend().copy(compute(kFirst), x.view(), y.view());
    compute(kFirst).synchronize();
    Gate gate;
    gate.block(compute(kFirst));
    x.fill(2);
    comm(other).wait(compute(kFirst).record());
    comm(kFirst).wait(comm(other).record());
    x.backend().copy(comm(kFirst), x.view(), y.view());
    const auto copied = comm(kFirst).record();
    EXPECT_FALSE(copied->has_passed());
    gate.open();
    compute(kFirst).wait(copied);
    EXPECT_EQ(values_of(y), std::vector<float>(1000, 2)) << to_string(other);
  }
}

TEST_F(CudaStreams, WaitForAnEventOfTheCpu) {
  Stream& cpu = comm({DeviceType::cpu, 5});
  for (int round = 0; round < 100; ++round) {
    std::atomic<int> done{0};
    cpu.submit([&] { done = round; });
    compute().wait(cpu.record());
    EXPECT_EQ(done, round);
  }
}

TEST_F(CudaStreams, CpuStreamsWaitForThem) {
  Stream& cpu = comm({DeviceType::cpu, 5});
  Gate gate;
  gate.block(compute());
  std::atomic<bool> went_on{false};
  cpu.wait(compute().record());
  cpu.submit([&] { went_on = true; });
  EXPECT_FALSE(went_on);
  gate.open();
  cpu.synchronize();
  EXPECT_TRUE(went_on);
  const auto event = compute().record();
  compute(kCpu).wait(event);  // the calling thread is that stream
  EXPECT_TRUE(event->has_passed());
}

TEST_F(CudaStreams, AFaultIsLeftToTheNextWait) {
  const Tensor source = Tensor::zeros({4, 2}, DType::float32, kFirst);
  const Tensor rows = Tensor::from(std::vector<std::int64_t>{4}, {1}, kFirst);
  const Tensor to = Tensor::empty({1, 2}, DType::float32, kFirst);
  const Tensor known = Tensor::zeros({1}, DType::int64, kFirst);
  source.backend().gather_rows(compute(), source.matrix(), known.view(), to.matrix(), 1);
  compute().synchronize();
  Gate gate;
  gate.block(compute());
  source.backend().gather_rows(compute(), source.matrix(), rows.view(), to.matrix(), 1);
  Stream& cpu = comm({DeviceType::cpu, 5});
  cpu.wait(compute().record());
  std::atomic<bool> went_on{false};
  cpu.submit([&] { went_on = true; });
  gate.open();
  cpu.synchronize();
  EXPECT_TRUE(went_on);
  expect_error(ErrorCode::Shape, "row 4 does not exist", [] { compute().synchronize(); });
}

TEST_F(CudaStreams, ManyThreadsMayUseOne) {
  const Tensor sum = Tensor::zeros({64}, DType::float32, kFirst);
  const Tensor one = Tensor::full({64}, 1, DType::float32, kFirst);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        sum.backend().axpy(compute(), 1, one.view(), sum.view());
        if (i % 10 == 0) compute().record()->wait();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(values_of(sum), std::vector<float>(64, 200));
}

TEST_F(CudaStreams, CapturedEventsPassInEveryLaunch) {
  const Tensor x = Tensor::zeros({8}, DType::float32, kFirst);
  std::shared_ptr<Event> captured;
  {
    StepGraph graph({kFirst});
    while (!graph.is_captured()) {
      graph.run([&] {
        x.fill(1);
        captured = compute().record();
        EXPECT_EQ(compute().record_timed() == nullptr, is_capturing_step());
        if (is_capturing_step()) {
          EXPECT_FALSE(captured->has_passed());
        }
      });
    }
    compute().synchronize();
    EXPECT_FALSE(captured->has_passed());
    expect_error(ErrorCode::State, "may not wait for the device", [&] { captured->wait(); });
  }
  EXPECT_TRUE(captured->has_passed()) << "nothing can run any more that was before it";
}

TEST_F(CudaStreams, OtherEventsCanBeAskedDuringACapture) {
  const auto passed = compute(kFirst).record();
  passed->wait();
  const Tensor x = Tensor::zeros({8}, DType::float32, kFirst);
  StepGraph graph({kFirst});
  for (std::size_t i = 0; i < StepGraph::kNumWarmUps; ++i) graph.run([&] { x.fill(3); });
  compute(kFirst).synchronize();
  Gate gate;
  gate.block(comm(kSibling));
  const auto pending = comm(kSibling).record();
  graph.run([&] {
    x.fill(3);
    EXPECT_FALSE(pending->has_passed());
    EXPECT_TRUE(passed->has_passed());
    gate.open();  // before the graph is made
  });
  EXPECT_TRUE(graph.is_captured());
  EXPECT_EQ(values_of(x), std::vector<float>(8, 3));
}

TEST_F(CudaStreams, TimedEventsKnowWhenTheyPassed) {
  // An anchor that was taken late or wrongly would be off by more than this.
  constexpr std::int64_t kSlack = 50'000'000;
  for (const Device device : {kFirst, kSibling, kOther}) {
    const std::int64_t before = trace::now_ns();
    std::vector<std::shared_ptr<Event>> events;
    for (int i = 0; i < 20; ++i) {
      events.push_back(compute(device).record_timed());
      ASSERT_NE(events.back(), nullptr);
    }
    events.back()->wait();
    const std::int64_t after = trace::now_ns();
    std::int64_t last = before - kSlack;
    for (const auto& event : events) {
      EXPECT_GE(event->passed_at_ns(), last);
      last = event->passed_at_ns();
    }
    EXPECT_LE(last, after + kSlack);
  }
}

}  // namespace
}  // namespace lockstep::runtime
