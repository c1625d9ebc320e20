#include <cmath>
#include <cstring>

#include "tests/emulated_gpu/test_support.h"

namespace emulated_gpu::testing {
namespace {

TEST(Memory, IsNaNUntilItIsWritten) {
  const Array<float> array(3);
  for (const float value : array.values()) EXPECT_TRUE(std::isnan(value));
}

TEST(Memory, RunsOut) {
  std::size_t free = 0, total = 0, after = 0;
  EXPECT_OK(cudaMemGetInfo(&free, &total));
  EXPECT_LE(free, total);
  void* memory = nullptr;
  EXPECT_CUDA(cudaErrorMemoryAllocation, cudaMalloc(&memory, free + 1));
  EXPECT_CUDA(cudaErrorMemoryAllocation, cudaGetLastError());
  EXPECT_OK(cudaGetLastError());
  {
    const Array<char> array(1000);
    EXPECT_OK(cudaMemGetInfo(&after, &total));
    EXPECT_EQ(after, free - 1000);
    EXPECT_GE(num_allocated_bytes(), 1000);
  }
  EXPECT_OK(cudaMemGetInfo(&after, &total));
  EXPECT_EQ(after, free);
}

TEST(Memory, RunsOutWhenATestSaysSo) {
  fail_allocations_after(100);
  void* memory = nullptr;
  { const Array<char> fits(60); }
  EXPECT_CUDA(cudaErrorMemoryAllocation, cudaMalloc(&memory, 41));
  EXPECT_EQ(memory, nullptr);
  clear_faults();
  { const Array<char> fits(41); }
}

TEST(Memory, IsFreedOnceAndOnlyWhereItStarts) {
  char* memory = nullptr;
  EXPECT_OK(cudaMalloc(reinterpret_cast<void**>(&memory), 16));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaFree(memory + 1));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaFreeHost(memory));
  EXPECT_OK(cudaFree(memory));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaFree(memory));
  EXPECT_OK(cudaFree(nullptr));
  cudaGetLastError();
}

TEST(Memory, PointersKnowWhereTheyAre) {
  const Array<int> array(4);
  const Pinned<int> pinned(4);
  int plain = 0;
  cudaPointerAttributes attributes{};
  EXPECT_OK(cudaPointerGetAttributes(&attributes, array.data() + 1));
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 0);
  EXPECT_OK(cudaPointerGetAttributes(&attributes, pinned.data() + 3));
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  EXPECT_OK(cudaPointerGetAttributes(&attributes, &plain));
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
}

TEST(Copies, FromPageableMemoryMayBeOverwrittenAtOnce) {
  Gate gate;
  const Stream stream;
  const Array<int> array(1);
  gate.block(stream);
  int value = 5;
  EXPECT_OK(cudaMemcpyAsync(array.data(), &value, sizeof(value), cudaMemcpyHostToDevice, stream));
  value = 6;
  gate.open();
  EXPECT_EQ(array.values(), std::vector<int>{5});
}

TEST(Copies, FromPinnedMemoryReadItWhenTheirTurnComes) {
  Gate gate;
  const Stream stream;
  const Array<int> array(1);
  const Pinned<int> value(1);
  gate.block(stream);
  value[0] = 5;
  EXPECT_OK(
      cudaMemcpyAsync(array.data(), value.data(), sizeof(int), cudaMemcpyHostToDevice, stream));
  value[0] = 6;  // a mistake on a GPU, and told by it
  gate.open();
  EXPECT_EQ(array.values(), std::vector<int>{6});
}

TEST(Copies, ToPinnedMemoryReturnAtOnceAndToPageableWhenDone) {
  const Stream stream;
  const Array<int> array(std::vector<int>{7});
  const Pinned<int> pinned(1);
  pinned[0] = 0;
  {
    Gate gate;
    gate.block(stream);
    EXPECT_OK(
        cudaMemcpyAsync(pinned.data(), array.data(), sizeof(int), cudaMemcpyDeviceToHost, stream));
    EXPECT_EQ(pinned[0], 0);
  }
  int plain = 0;
  EXPECT_OK(cudaMemcpyAsync(&plain, array.data(), sizeof(int), cudaMemcpyDefault, stream));
  EXPECT_EQ(plain, 7);
  EXPECT_EQ(pinned[0], 7);  // it was queued before
}

TEST(Copies, MustBeWhatTheySay) {
  const Stream stream;
  const Array<int> array(4), other(4);
  int plain[4] = {};
  const auto copy = [&](void* to, const void* from, std::size_t num_bytes, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, num_bytes, kind, stream);
  };
  EXPECT_CUDA(cudaErrorInvalidValue, copy(array.data(), other.data(), 16, cudaMemcpyHostToDevice));
  EXPECT_CUDA(cudaErrorInvalidValue, copy(plain, plain, 16, cudaMemcpyDeviceToHost));
  EXPECT_CUDA(cudaErrorInvalidValue, copy(array.data(), plain, 17, cudaMemcpyHostToDevice));
  EXPECT_CUDA(cudaErrorInvalidValue, copy(array.data() + 1, plain, 16, cudaMemcpyHostToDevice));
  EXPECT_CUDA(cudaErrorInvalidValue,
              copy(array.data(), array.data() + 1, 8, cudaMemcpyDeviceToDevice));
  EXPECT_CUDA(cudaErrorInvalidValue, copy(nullptr, plain, 16, cudaMemcpyHostToDevice));
  EXPECT_OK(copy(nullptr, nullptr, 0, cudaMemcpyHostToDevice));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaMemsetAsync(plain, 0, 4, stream));
  cudaGetLastError();
}

TEST(Devices, AreThereAndPerThread) {
  int count = 0;
  EXPECT_OK(cudaGetDeviceCount(&count));
  EXPECT_EQ(count, 2);
  EXPECT_CUDA(cudaErrorInvalidDevice, cudaSetDevice(2));
  EXPECT_OK(cudaSetDevice(1));
  std::async(std::launch::async, [] {
    int gpu = -1;
    EXPECT_OK(cudaGetDevice(&gpu));
    EXPECT_EQ(gpu, 0);
    EXPECT_OK(cudaGetLastError());
  }).get();
  EXPECT_OK(cudaSetDevice(0));
  cudaDeviceProp properties{};
  EXPECT_OK(cudaGetDeviceProperties(&properties, 1));
  EXPECT_STREQ(properties.name, "Emulated GPU 1");
  EXPECT_EQ(properties.major, 9);
  char bus[16] = {};
  EXPECT_OK(cudaDeviceGetPCIBusId(bus, sizeof(bus), 1));
  EXPECT_STREQ(bus, "0000:02:00.0");
  cudaGetLastError();
}

TEST(Devices, GivePeersAccessOnce) {
  int possible = -1;
  EXPECT_OK(cudaDeviceCanAccessPeer(&possible, 0, 1));
  EXPECT_EQ(possible, 1);
  EXPECT_OK(cudaDeviceCanAccessPeer(&possible, 1, 1));
  EXPECT_EQ(possible, 0);
  EXPECT_OK(cudaDeviceEnablePeerAccess(1, 0));
  EXPECT_CUDA(cudaErrorPeerAccessAlreadyEnabled, cudaDeviceEnablePeerAccess(1, 0));
  EXPECT_CUDA(cudaErrorInvalidDevice, cudaDeviceEnablePeerAccess(0, 0));
  cudaGetLastError();
}

}  // namespace
}  // namespace emulated_gpu::testing
