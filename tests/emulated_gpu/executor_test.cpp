#include "tests/emulated_gpu/test_support.h"

namespace emulated_gpu::testing {
namespace {

__global__ void write_positions(unsigned* out) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  out[block * threads + thread] += block * 10000 + thread;
}

TEST(Executor, RunsEveryThreadOfEveryBlockOnce) {
  const Stream stream;
  const Array<unsigned> out(std::vector<unsigned>(12 * 70));
  EXPECT_OK(launch(stream, dim3(3, 2, 2), dim3(7, 5, 2), write_positions, out.data()));
  const std::vector<unsigned> found = out.values();
  for (unsigned i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], i / 70 * 10000 + i % 70) << i;
}

__global__ void reverse_in_place(int* data) {
  __shared__ int copy[1024];
  copy[threadIdx.x] = data[threadIdx.x];
  __syncthreads();
  data[threadIdx.x] = copy[blockDim.x - 1 - threadIdx.x];
}

__global__ void reverse_without_barrier(int* data) {
  __shared__ int copy[64];
  copy[threadIdx.x] = -1;
  __syncthreads();
  copy[threadIdx.x] = data[threadIdx.x];
  data[threadIdx.x] = copy[blockDim.x - 1 - threadIdx.x];
}

TEST(Executor, ABarrierHoldsAllThreadsOfABlock) {
  for (const unsigned threads : {1u, 32u, 33u, 1024u}) {
    const Stream stream;
    std::vector<int> values(threads);
    for (unsigned i = 0; i < threads; ++i) values[i] = static_cast<int>(i);
    const Array<int> data(values);
    EXPECT_OK(launch(stream, 1, threads, reverse_in_place, data.data()));
    std::reverse(values.begin(), values.end());
    EXPECT_EQ(data.values(), values);
    // Once more, with the threads in the other order.
    EXPECT_OK(launch(stream, 1, threads, reverse_in_place, data.data()));
    std::reverse(values.begin(), values.end());
    EXPECT_EQ(data.values(), values);
  }
}

TEST(Executor, AMissingBarrierChangesTheResult) {
  const Stream stream;
  std::vector<int> values(64);
  for (int i = 0; i < 64; ++i) values[static_cast<std::size_t>(i)] = i;
  const Array<int> data(values);
  EXPECT_OK(launch(stream, 1, 64, reverse_without_barrier, data.data()));
  std::reverse(values.begin(), values.end());
  EXPECT_NE(data.values(), values);
}

__global__ void shift_many_times(int* data, int num_times) {
  for (int i = 0; i < num_times; ++i) {
    const int next = data[(threadIdx.x + 1) % blockDim.x];
    __syncthreads();
    data[threadIdx.x] = next;
    __syncthreads();
  }
}

TEST(Executor, BarriersInALoopKeepThreadsTogether) {
  const Stream stream;
  std::vector<int> values(100);
  for (int i = 0; i < 100; ++i) values[static_cast<std::size_t>(i)] = i;
  const Array<int> data(values);
  EXPECT_OK(launch(stream, 1, 100, shift_many_times, data.data(), 37));
  std::rotate(values.begin(), values.begin() + 37, values.end());
  EXPECT_EQ(data.values(), values);
}

__global__ void half_of_the_threads_leave(int* out) {
  if (threadIdx.x % 2 == 1) return;
  __syncthreads();
  *out = 1;
}

TEST(Executor, ThreadsThatHaveExitedCountAsArrived) {
  const Stream stream;
  const Array<int> out(1);
  EXPECT_OK(launch(stream, 1, 100, half_of_the_threads_leave, out.data()));
  EXPECT_EQ(out.values(), std::vector<int>{1});
}

__global__ void copy_shared(unsigned* out) {
  unsigned* shared = lockstep::runtime::cuda::dynamic_shared_memory<unsigned>();
  out[blockIdx.x * blockDim.x + threadIdx.x] = shared[threadIdx.x];
  shared[threadIdx.x] = 5;
}

TEST(Executor, DynamicSharedMemoryIsNaNBeforeABlockWrites) {
  const Stream stream;
  const Array<unsigned> out(8);
  cudaLaunchConfig_t config{};
  config.gridDim = 2;
  config.blockDim = 4;
  config.dynamicSmemBytes = 16;
  config.stream = stream;
  EXPECT_OK(lockstep::runtime::cuda::launch_kernel<unsigned*>(copy_shared, config, out.data()));
  EXPECT_EQ(out.values(), std::vector<unsigned>(8, 0xFFFFFFFFu));
}

TEST(Executor, RefusesWhatAGpuRefuses) {
  const Stream stream;
  const Array<unsigned> out(1);
  EXPECT_CUDA(cudaErrorInvalidConfiguration, launch(stream, 0, 32, write_positions, out.data()));
  EXPECT_CUDA(cudaErrorInvalidConfiguration, launch(stream, 1, 1025, write_positions, out.data()));
  EXPECT_CUDA(cudaErrorInvalidConfiguration,
              launch(stream, dim3(1, 65536), 1, write_positions, out.data()));
  cudaLaunchConfig_t config{};
  config.gridDim = 1;
  config.blockDim = 1;
  config.stream = stream;
  config.dynamicSmemBytes = 47 * 1024 + 1;
  const auto launch_big = [&] {
    return lockstep::runtime::cuda::launch_kernel<unsigned*>(copy_shared, config, out.data());
  };
  EXPECT_CUDA(cudaErrorInvalidValue, launch_big());
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGetLastError());
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
    __shfl_xor_sync(0xFFFFFFFFu, 1, 1);
  }
}

TEST(ExecutorDeathTest, BarriersAtDifferentLinesEndTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        const Stream stream;
        (void)launch(stream, 1, 64, two_barriers);
        stream.wait();
      },
      "executor_test.cpp:[0-9]+: thread \\([0-9]+, 0, 0\\) of block \\(0, 0, 0\\) is in another");
}

TEST(ExecutorDeathTest, ADeadlockEndsTheProgramAndNamesWhoWaits) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        const Stream stream;
        (void)launch(stream, 1, 32, barrier_and_shuffle);
        stream.wait();
      },
      "deadlock in block \\(0, 0, 0\\)");
}

}  // namespace
}  // namespace emulated_gpu::testing
