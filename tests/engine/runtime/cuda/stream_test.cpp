// Streams and events of a CUDA device, among each other and with the CPU's.
#include "engine/runtime/stream.h"

#include <thread>

#include "kernels/calls.h"
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

TEST_F(CudaStreams, WorkAfterAWaitRunsAfterTheEvent) {
  for (const Device other : {kFirst, kSibling, kOther}) {
    const Tensor x = Tensor::full({1000}, 1, DType::float32, kFirst);
    const Tensor y = Tensor::zeros({1000}, DType::float32, kFirst);
    x.fill(0);
    x.backend().copy(compute(kFirst), {x.view(), y.view()});
    compute(kFirst).synchronize();
    Gate gate;
    gate.block(compute(kFirst));
    x.fill(2);
    comm(other).wait(compute(kFirst).record());
    comm(kFirst).wait(comm(other).record());
    x.backend().copy(comm(kFirst), {x.view(), y.view()});
    const auto copied = comm(kFirst).record();
    EXPECT_FALSE(copied->has_passed());
    gate.open();
    compute(kFirst).wait(copied);
    EXPECT_EQ(values_of(y), std::vector<float>(1000, 2)) << to_string(other);
  }
}

TEST_F(CudaStreams, AnEventOfTheCpuHasPassed) {
  compute().wait(compute(kCpu).record());
}

TEST_F(CudaStreams, TheCpuWaitsForThem) {
  Gate gate;
  gate.block(compute());
  const auto event = compute().record();
  EXPECT_FALSE(event->has_passed());
  std::thread opener([&] { gate.open(); });
  compute(kCpu).wait(event);  // the calling thread is that stream
  EXPECT_TRUE(event->has_passed());
  opener.join();
}

}  // namespace
}  // namespace lockstep::runtime
