#include "tests/emulated_gpu/test_support.h"

namespace emulated_gpu::testing {
namespace {

constexpr unsigned kAll = 0xFFFFFFFFu;

template <typename T>
__global__ void sum_by_down(const T* in, T* out) {
  T value = in[threadIdx.x];
  for (unsigned delta = 16; delta > 0; delta /= 2) value += __shfl_down_sync(kAll, value, delta);
  if (threadIdx.x % 32 == 0) out[threadIdx.x / 32] = value;
}

template <typename T>
__global__ void sum_by_xor(const T* in, T* out) {
  T value = in[threadIdx.x];
  for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(kAll, value, mask);
  out[threadIdx.x] = value;
}

template <typename T>
class Warp : public ::testing::Test {};
using Types = ::testing::Types<int, unsigned, long long, float, double>;
TYPED_TEST_SUITE(Warp, Types);

TYPED_TEST(Warp, SumsByShuffles) {
  const Stream stream;
  std::vector<TypeParam> in(96);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<TypeParam>(i);
  const Array<TypeParam> values(in), sums(3), all(96);
  EXPECT_OK(launch(stream, 1, 96, sum_by_down<TypeParam>, values.data(), sums.data()));
  EXPECT_OK(launch(stream, 1, 96, sum_by_xor<TypeParam>, values.data(), all.data()));
  for (std::size_t i = 0; i < 96; ++i) {
    const auto expected = static_cast<TypeParam>(31 * 16 + i / 32 * 32 * 32);
    EXPECT_EQ(sums.values()[i / 32], expected);
    EXPECT_EQ(all.values()[i], expected);
  }
}

__global__ void some_lanes_leave(unsigned* out) {
  if (threadIdx.x >= 20) return;
  __syncwarp();
  out[threadIdx.x] = 1;
}

TEST(Warp, LanesThatHaveExitedAreNotWaitedFor) {
  const Stream stream;
  const Array<unsigned> out(20);
  EXPECT_OK(launch(stream, 1, 32, some_lanes_leave, out.data()));
  EXPECT_EQ(out.values(), std::vector<unsigned>(20, 1));
}

__global__ void reads_beyond_the_block() {
  __shfl_down_sync(kAll, 1.0f, 16);
}

__global__ void leaves_itself_out() {
  __syncwarp(0x1u);
}

__global__ void calls_different_intrinsics() {
  if (threadIdx.x < 16) {
    __syncwarp();
  } else {
    __shfl_xor_sync(kAll, 1, 1);
  }
}

void run(void (*kernel)(), unsigned threads) {
  const Stream stream;
  (void)launch(stream, 1, threads, kernel);
  stream.wait();
}

TEST(WarpDeathTest, WhatIsUndefinedOnAGpuEndsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(run(reads_beyond_the_block, 24), "a lane that does not take part");
  EXPECT_DEATH(run(leaves_itself_out, 2), "leaves out its own lane");
  EXPECT_DEATH(run(calls_different_intrinsics, 32), "while another lane of its warp waits in");
}

__global__ void add_atomically(int* sum, float* float_sum, unsigned long long* largest) {
  atomicAdd(sum, 1);
  atomicAdd(float_sum, 0.5f);
  atomicMax(largest, threadIdx.x + 1000ull * blockIdx.x);
}

TEST(Atomics, StreamsThatRunAtTheSameTimeLoseNothing) {
  const Array<int> sum(std::vector<int>{0});
  const Array<float> float_sum(std::vector<float>{0});
  const Array<unsigned long long> largest(std::vector<unsigned long long>{0});
  {
    const Stream first, second;
    for (const Stream* stream : {&first, &second}) {
      EXPECT_OK(
          launch(*stream, 40, 256, add_atomically, sum.data(), float_sum.data(), largest.data()));
    }
  }
  EXPECT_EQ(sum.values()[0], 2 * 40 * 256);
  EXPECT_EQ(float_sum.values()[0], 40 * 256);
  EXPECT_EQ(largest.values()[0], 39255);
}

}  // namespace
}  // namespace emulated_gpu::testing
