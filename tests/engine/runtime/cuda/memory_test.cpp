// Pools of device memory: when a block may be given out again, and who counts it.
#include "engine/runtime/memory_pool.h"

#include "engine/runtime/cuda_device.h"
#include "engine/runtime/step_graph.h"
#include "engine/runtime/storage.h"
#include "tests/engine/runtime/cuda/cuda_test.h"

namespace lockstep::runtime {
namespace {

class CudaMemory : public CudaTest {};

constexpr std::size_t kSize = 1 << 20;

MemoryStatistics statistics(Device device = kFirst) {
  return logical_device(device).own_memory().statistics();
}

TEST_F(CudaMemory, IsGivenOutAgainAtOnce) {
  { const Tensor cached = Tensor::full({kSize}, 0, DType::uint8, kFirst); }
  compute().synchronize();
  Gate gate;
  gate.block(compute());
  void* first = nullptr;
  {
    const Tensor x = Tensor::full({kSize}, 1, DType::uint8, kFirst);
    first = x.raw();
  }
  const Tensor y = Tensor::full({kSize}, 2, DType::uint8, kFirst);
  EXPECT_EQ(y.raw(), first);
  gate.open();
  EXPECT_EQ(y.to_vector<std::uint8_t>(), std::vector<std::uint8_t>(kSize, 2));
}

TEST_F(CudaMemory, ThatAnotherStreamUsesWaitsForIt) {
  LogicalDevice& device = logical_device(kFirst);
  for (Stream* user : {&device.comm_stream(), &device.copy_stream(), &compute(kSibling)}) {
    { const Storage cached(device, kSize), another(device, kSize); }
    Gate gate;
    gate.block(*user);
    void* used = nullptr;
    {
      Storage storage(device, kSize);
      used = storage.data();
      storage.record_use(*user);
      storage.record_use(*user);
    }
    {
      Storage other(device, kSize);
      EXPECT_NE(other.data(), used);
      gate.open();
      user->synchronize();
    }
    device.own_memory().release_cached();  // the other one
    Storage again(device, kSize);
    (void)again;
    EXPECT_EQ(statistics().cached_bytes, 0u) << "what was in use is not lost";
  }
}

TEST_F(CudaMemory, IsCountedPerLogicalDevice) {
  const auto first = statistics(kFirst), sibling = statistics(kSibling);
  logical_device(kFirst).own_memory().reset_peak();
  logical_device(kSibling).own_memory().reset_peak();
  {
    const Tensor x = Tensor::empty({kSize}, DType::uint8, kFirst);
    const Tensor y = Tensor::empty({2 * kSize}, DType::uint8, kSibling);
    EXPECT_EQ(statistics(kFirst).current_bytes, first.current_bytes + kSize);
    EXPECT_EQ(statistics(kSibling).current_bytes, sibling.current_bytes + 2 * kSize);
  }
  EXPECT_EQ(statistics(kFirst).current_bytes, first.current_bytes);
  EXPECT_EQ(statistics(kFirst).peak_bytes, first.current_bytes + kSize);
  EXPECT_EQ(statistics(kSibling).peak_bytes, sibling.current_bytes + 2 * kSize);
}

TEST_F(CudaMemory, OfACapturedStepLivesWithItsGraph) {
  const Tensor result = Tensor::zeros({kSize}, DType::uint8, kFirst);
  const std::size_t before = statistics().current_bytes;
  logical_device(kFirst).own_memory().reset_peak();
  {
    StepGraph graph({kFirst});
    const auto step = [&] {
      const Tensor a = Tensor::full({kSize}, 1, DType::uint8, kFirst);
      const Tensor b = a.clone();
      result.copy_from(b);
    };
    graph.run(step);
    EXPECT_EQ(statistics().current_bytes, before) << "nothing lives on between warm-ups";
    EXPECT_EQ(statistics().peak_bytes, before + 2 * kSize);
    while (!graph.is_captured()) graph.run(step);
    EXPECT_EQ(statistics().current_bytes, before + 2 * kSize);
  }
  EXPECT_EQ(statistics().current_bytes, before);
}

TEST_F(CudaMemory, PinnedIsReused) {
  void* first = nullptr;
  {
    const Tensor x = Tensor::empty_pinned({kSize}, DType::uint8);
    first = x.raw();
    EXPECT_TRUE(is_pinned(0, first));
    EXPECT_EQ(x.device(), kCpu);
  }
  const Tensor y = Tensor::empty_pinned({kSize}, DType::uint8);
  EXPECT_EQ(y.raw(), first);
  EXPECT_FALSE(is_pinned(0, Tensor::empty({kSize}, DType::uint8, kCpu).raw()));
  std::fill_n(y.host<std::uint8_t>().data(), kSize, std::uint8_t{9});
  EXPECT_EQ(y.to(kFirst).to_vector<std::uint8_t>(), std::vector<std::uint8_t>(kSize, 9));
}

}  // namespace
}  // namespace lockstep::runtime
