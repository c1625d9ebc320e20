// The emulated GPU refuses and accepts what hardware does.
#include "tests/emulated_gpu/test_support.h"

namespace emulated_gpu::testing {
namespace {

// --- kernels

constexpr unsigned kAll = 0xFFFFFFFFu;

__global__ void append(int* list, int value) {
  list[++list[0]] = value;
}
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

// --- streams

TEST(EmulatedStreams, BelongToAGpu) {
  const Stream stream;
  const Array<int> list(std::vector<int>(3));
  EXPECT_OK(cudaSetDevice(1));
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, launch(stream, 1, 1, append, list.data(), 1));
  {
    const Event event;
    EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaEventRecord(event, stream));
  }
  EXPECT_OK(cudaSetDevice(0));
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaGetLastError());
}

TEST(EmulatedStreams, HostFunctionsMayNotCallCuda) {
  const Stream stream;
  cudaError_t found = cudaSuccess;
  EXPECT_OK(cudaLaunchHostFunc(
      stream,
      [](void* result) {
        int gpu = 0;
        *static_cast<cudaError_t*>(result) = cudaGetDevice(&gpu);
      },
      &found));
  stream.wait();
  EXPECT_CUDA(cudaErrorNotPermitted, found);
}

TEST(EmulatedStreams, AFailedKernelStaysWithItsGpu) {
  const Stream stream;
  const Array<int> list(std::vector<int>(3));
  fail_next_kernel(stream);
  EXPECT_OK(launch(stream, 1, 1, append, list.data(), 1));  // asynchronous
  EXPECT_CUDA(cudaErrorIllegalAddress, cudaStreamSynchronize(stream));
  EXPECT_CUDA(cudaErrorIllegalAddress, cudaGetLastError());
  EXPECT_CUDA(cudaErrorIllegalAddress, cudaGetLastError());
  void* memory = nullptr;
  EXPECT_CUDA(cudaErrorIllegalAddress, cudaMalloc(&memory, 4));
  EXPECT_CUDA(cudaErrorIllegalAddress, launch(stream, 1, 1, append, list.data(), 2));
  EXPECT_OK(cudaSetDevice(1));
  EXPECT_OK(cudaDeviceSynchronize());  // another GPU works
  EXPECT_OK(cudaSetDevice(0));
  clear_faults();
  EXPECT_OK(launch(stream, 1, 1, append, list.data(), 3));
  EXPECT_EQ(list.values(), (std::vector<int>{1, 3, 0}));
}

// --- memory

TEST(EmulatedMemory, IsFreedOnceAndOnlyWhereItStarts) {
  char* memory = nullptr;
  EXPECT_OK(cudaMalloc(reinterpret_cast<void**>(&memory), 16));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaFree(memory + 1));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaFreeHost(memory));
  EXPECT_OK(cudaFree(memory));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaFree(memory));
  EXPECT_OK(cudaFree(nullptr));
  cudaGetLastError();
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

TEST(EmulatedCopies, ToPageableMemoryReturnWhenDone) {
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

TEST(EmulatedCopies, MustBeWhatTheySay) {
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

// --- graphs

void begin(cudaStream_t stream, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
  EXPECT_OK(cudaStreamBeginCapture(stream, mode));
}

cudaGraph_t end(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  EXPECT_OK(cudaStreamEndCapture(stream, &graph));
  return graph;
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

TEST(EmulatedGraphs, CannotMergeTwoCaptures) {
  const Stream first, second;
  const Event event;
  begin(first);
  begin(second);
  EXPECT_OK(cudaEventRecord(event, second));
  EXPECT_CUDA(cudaErrorStreamCaptureMerge, cudaStreamWaitEvent(first, event, 0));
  expect_end(cudaErrorStreamCaptureInvalidated, first);
  expect_end(cudaErrorStreamCaptureInvalidated, second);
}

TEST(EmulatedGraphs, AreEndedWhereTheyBegan) {
  const Stream first, second;
  const Event fork;
  begin(first);
  EXPECT_OK(cudaEventRecord(fork, first));
  EXPECT_OK(cudaStreamWaitEvent(second, fork, 0));
  cudaGraph_t graph = nullptr;
  EXPECT_CUDA(cudaErrorStreamCaptureUnmatched, cudaStreamEndCapture(second, &graph));
  expect_end(cudaErrorStreamCaptureInvalidated, first);
  begin(first);
  std::async(std::launch::async, [&] {
    expect_end(cudaErrorStreamCaptureWrongThread, first);
  }).get();
  EXPECT_OK(cudaGraphDestroy(end(first)));
  EXPECT_CUDA(cudaErrorIllegalState, cudaStreamEndCapture(first, &graph));
  cudaGetLastError();
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

TEST(EmulatedGraphs, LeaveOtherThreadsAloneUnlessTheyAreGlobal) {
  const Stream stream;
  const auto allocate_elsewhere = [] {
    return std::async(std::launch::async,
                      [] {
                        void* memory = nullptr;
                        const cudaError_t error = cudaMalloc(&memory, 4);
                        cudaFree(memory);
                        return error;
                      })
        .get();
  };
  begin(stream, cudaStreamCaptureModeThreadLocal);
  EXPECT_OK(allocate_elsewhere());
  EXPECT_OK(cudaGraphDestroy(end(stream)));
  begin(stream, cudaStreamCaptureModeGlobal);
  EXPECT_CUDA(cudaErrorStreamCaptureUnsupported, allocate_elsewhere());
  expect_end(cudaErrorStreamCaptureInvalidated, stream);
}

TEST(EmulatedGraphs, CannotAskForCapturedEvents) {
  const Stream stream;
  const Event event;
  begin(stream, cudaStreamCaptureModeRelaxed);
  EXPECT_OK(cudaEventRecord(event, stream));
  EXPECT_CUDA(cudaErrorCapturedEvent, cudaEventQuery(event));
  expect_end(cudaErrorStreamCaptureInvalidated, stream);
}

}  // namespace
}  // namespace emulated_gpu::testing
