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

}  // namespace
}  // namespace lockstep::runtime
