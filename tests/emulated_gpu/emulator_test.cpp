// The emulated GPU ends a program whose kernel would hang or be undefined on hardware.
#include "tests/emulated_gpu/test_support.h"

namespace emulated_gpu::testing {
namespace {

constexpr unsigned kAll = 0xFFFFFFFFu;

__global__ void store(int* to, int value) {
  *to = value;
}

__global__ void reverse_without_barrier(int* data) {
  __shared__ int copy[64];
  copy[threadIdx.x] = -1;
  __syncthreads();
  copy[threadIdx.x] = data[threadIdx.x];
  data[threadIdx.x] = copy[blockDim.x - 1 - threadIdx.x];
}

TEST(EmulatedKernels, AMissingBarrierChangesTheResult) {
  const Stream stream;
  std::vector<int> values(64);
  for (int i = 0; i < 64; ++i) values[static_cast<std::size_t>(i)] = i;
  const Array<int> data(values);
  EXPECT_OK(launch(stream, 1, 64, reverse_without_barrier, data.data()));
  std::reverse(values.begin(), values.end());
  EXPECT_NE(data.values(), values);
}

TEST(EmulatedKernels, LaunchesThatNoGpuTakesAreRefused) {
  const Stream stream;
  const Array<int> out(1);
  EXPECT_CUDA(cudaErrorInvalidConfiguration, launch(stream, 0, 32, store, out.data(), 1));
  EXPECT_CUDA(cudaErrorInvalidConfiguration, launch(stream, 1, 1025, store, out.data(), 1));
  EXPECT_CUDA(cudaErrorInvalidConfiguration,
              launch(stream, dim3(1, 65536), 1, store, out.data(), 1));
  EXPECT_CUDA(cudaErrorInvalidConfiguration, cudaGetLastError());
  EXPECT_OK(cudaGetLastError());
}

__global__ void two_barriers() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}
__global__ void barrier_and_shuffle() {
  if (threadIdx.x == 5) {
    __syncthreads();
  } else {
    __shfl_xor_sync(kAll, 1, 1);
  }
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

TEST(EmulatedKernels, WhatHangsOrIsUndefinedEndsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [](void (*kernel)(), unsigned threads) {
    const Stream stream;
    (void)launch(stream, 1, threads, kernel);
    stream.wait();
  };
  EXPECT_DEATH(run(two_barriers, 64),
               "_test.cpp:[0-9]+: thread \\([0-9]+, 0, 0\\) of block \\(0, 0, 0\\) is in another");
  EXPECT_DEATH(run(barrier_and_shuffle, 32), "deadlock in block \\(0, 0, 0\\)");
  EXPECT_DEATH(run(reads_beyond_the_block, 24), "a lane that does not take part");
  EXPECT_DEATH(run(leaves_itself_out, 2), "leaves out its own lane");
  EXPECT_DEATH(run(calls_different_intrinsics, 32), "while another lane of its warp waits in");
}

}  // namespace
}  // namespace emulated_gpu::testing
