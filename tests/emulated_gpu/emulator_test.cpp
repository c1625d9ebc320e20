// The emulated GPU refuses and accepts what hardware does.
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

__global__ void copy_shared(unsigned* out) {
  unsigned* shared = lockstep::runtime::cuda::dynamic_shared_memory<unsigned>();
  out[blockIdx.x * blockDim.x + threadIdx.x] = shared[threadIdx.x];
  shared[threadIdx.x] = 5;
}

TEST(EmulatedKernels, DynamicSharedMemoryBeginsAsNaN) {
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

TEST(EmulatedKernels, LaunchesThatNoGpuTakesAreRefused) {
  const Stream stream;
  const Array<unsigned> out(1);
  EXPECT_CUDA(cudaErrorInvalidConfiguration, launch(stream, 0, 32, copy_shared, out.data()));
  EXPECT_CUDA(cudaErrorInvalidConfiguration, launch(stream, 1, 1025, copy_shared, out.data()));
  EXPECT_CUDA(cudaErrorInvalidConfiguration,
              launch(stream, dim3(1, 65536), 1, copy_shared, out.data()));
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

TEST(EmulatedCopies, FromPageableMemoryMayBeOverwrittenAtOnce) {
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

TEST(EmulatedCopies, FromPinnedMemoryReadItInTurn) {
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

void begin(cudaStream_t stream, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
  EXPECT_OK(cudaStreamBeginCapture(stream, mode));
}

// Ends a capture that failed.
void expect_end(cudaError_t expected, cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  EXPECT_CUDA(expected, cudaStreamEndCapture(stream, &graph));
  EXPECT_EQ(graph, nullptr);
  cudaGetLastError();
}

TEST(EmulatedGraphs, MustJoinWhatTheyFork) {
  const Stream first, second;
  const Array<int> a(1);
  const Event fork;
  begin(first);
  EXPECT_OK(cudaEventRecord(fork, first));
  EXPECT_OK(cudaStreamWaitEvent(second, fork, 0));
  EXPECT_OK(launch(second, 1, 1, store, a.data(), 4));
  expect_end(cudaErrorStreamCaptureUnjoined, first);
  EXPECT_OK(launch(second, 1, 1, store, a.data(), 5));  // free again
  EXPECT_EQ(a.values(), std::vector<int>{5});
}

TEST(EmulatedGraphs, CannotWaitForWorkOutside) {
  const Stream first, second;
  const Event outside;
  EXPECT_OK(cudaEventRecord(outside, second));
  begin(first);
  EXPECT_CUDA(cudaErrorStreamCaptureIsolation, cudaStreamWaitEvent(first, outside, 0));
  expect_end(cudaErrorStreamCaptureInvalidated, first);
}

// Calls that break a capture of the same thread, unless it or the thread is relaxed.
TEST(EmulatedGraphs, ForbidUnsafeCallsMeanwhile) {
  const Stream stream, other;
  const Event event;
  void* memory = nullptr;
  const std::function<cudaError_t()> calls[] = {
      [&] { return cudaMalloc(&memory, 4); },       [&] { return cudaStreamSynchronize(stream); },
      [&] { return cudaStreamSynchronize(other); }, [&] { return cudaDeviceSynchronize(); },
      [&] { return cudaEventQuery(event); },        [&] { return cudaEventSynchronize(event); },
  };
  for (const auto& call : calls) {
    begin(stream, cudaStreamCaptureModeThreadLocal);
    EXPECT_CUDA(cudaErrorStreamCaptureUnsupported, call());
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    EXPECT_OK(cudaStreamIsCapturing(stream, &status));
    EXPECT_EQ(status, cudaStreamCaptureStatusInvalidated);
    expect_end(cudaErrorStreamCaptureInvalidated, stream);
  }
}

}  // namespace
}  // namespace emulated_gpu::testing
