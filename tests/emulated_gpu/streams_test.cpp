#include "tests/emulated_gpu/test_support.h"

namespace emulated_gpu::testing {
namespace {

__global__ void append(int* list, int value) {
  list[++list[0]] = value;
}

TEST(Streams, RunTheirWorkInOrder) {
  const Stream stream;
  const Array<int> list(std::vector<int>(4));
  for (int i = 1; i <= 3; ++i) EXPECT_OK(launch(stream, 1, 1, append, list.data(), i));
  EXPECT_EQ(list.values(), (std::vector<int>{3, 1, 2, 3}));
}

TEST(Streams, RunBesideTheHostAndEachOther) {
  Gate gate;
  const Stream blocked, other;
  const Array<int> list(std::vector<int>(3));
  gate.block(blocked);
  EXPECT_OK(launch(blocked, 1, 1, append, list.data(), 1));
  EXPECT_OK(launch(other, 1, 1, append, list.data(), 2));
  other.wait();
  gate.open();
  blocked.wait();
  EXPECT_EQ(list.values(), (std::vector<int>{2, 2, 1}));
  cudaGetLastError();
}

TEST(Streams, WaitForEventsAcrossGpus) {
  Gate gate;
  const Stream first;
  const Array<int> list(std::vector<int>(3));
  const Event event;
  gate.block(first);
  EXPECT_OK(launch(first, 1, 1, append, list.data(), 1));
  EXPECT_OK(cudaEventRecord(event, first));
  EXPECT_CUDA(cudaErrorNotReady, cudaEventQuery(event));
  EXPECT_OK(cudaSetDevice(1));
  {
    const Stream second;
    EXPECT_OK(cudaStreamWaitEvent(second, event, 0));
    EXPECT_OK(launch(second, 1, 1, append, list.data(), 2));
    gate.open();
    second.wait();
  }
  EXPECT_OK(cudaSetDevice(0));
  EXPECT_OK(cudaEventQuery(event));
  EXPECT_EQ(list.values(), (std::vector<int>{2, 1, 2}));
  cudaGetLastError();
}

TEST(Streams, AnEventStandsForTheMomentOfItsRecording) {
  Gate gate;
  const Stream stream;
  const Event event;
  EXPECT_OK(cudaEventSynchronize(event));  // never recorded: nothing to wait for
  EXPECT_OK(cudaEventRecord(event, stream));
  stream.wait();
  gate.block(stream);
  ASSERT_EQ(cudaEventQuery(event), cudaSuccess) << "what came later is not waited for";
  EXPECT_OK(cudaEventSynchronize(event));
}

TEST(Streams, EventsMeasureTimeOnlyWhereTheyWereMadeTo) {
  const Stream stream;
  const Event first(cudaEventDefault), second(cudaEventDefault), untimed;
  float milliseconds = -1;
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&milliseconds, first, second));
  for (const Event* event : {&first, &second, &untimed}) EXPECT_OK(cudaEventRecord(*event, stream));
  stream.wait();
  EXPECT_OK(cudaEventElapsedTime(&milliseconds, first, second));
  EXPECT_GE(milliseconds, 0);
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&milliseconds, first, untimed));
  cudaGetLastError();
}

TEST(Streams, BelongToAGpu) {
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

TEST(Streams, FinishTheirWorkAfterTheyAreDestroyed) {
  Gate gate;
  const Array<int> list(std::vector<int>(2));
  {
    const Stream stream;
    gate.block(stream);
    EXPECT_OK(launch(stream, 1, 1, append, list.data(), 7));
  }
  gate.open();
  EXPECT_EQ(list.values(), (std::vector<int>{1, 7}));
  EXPECT_CUDA(cudaErrorInvalidResourceHandle,
              cudaStreamSynchronize(reinterpret_cast<cudaStream_t>(list.data())));
  cudaGetLastError();
}

TEST(Streams, TheDefaultStreamWaitsForBlockingOnesAndTheyForIt) {
  Gate gate;
  const Stream blocking(cudaStreamDefault), free;
  const Array<int> list(std::vector<int>(4));
  gate.block(blocking);
  EXPECT_OK(launch(blocking, 1, 1, append, list.data(), 1));
  EXPECT_OK(launch(nullptr, 1, 1, append, list.data(), 2));
  EXPECT_OK(launch(blocking, 1, 1, append, list.data(), 3));
  free.wait();  // is not held up
  gate.open();
  EXPECT_EQ(list.values(), (std::vector<int>{3, 1, 2, 3}));
}

TEST(Streams, HostFunctionsMayNotCallCuda) {
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

TEST(Faults, AFailedKernelStaysWithItsGpu) {
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

TEST(Counters, CountWhatRan) {
  const Stream stream;
  const Array<int> list(std::vector<int>(3));
  reset_counters();
  EXPECT_OK(launch(stream, 1, 1, append, list.data(), 1));
  EXPECT_OK(launch(stream, 1, 1, append, list.data(), 1));
  (void)list.values();
  { const Array<int> other(1); }
  const Counters found = counters();
  EXPECT_EQ(found.num_kernels, 2);
  EXPECT_EQ(found.num_copies, 1);
  EXPECT_EQ(found.num_mallocs, 1);
  EXPECT_EQ(found.num_frees, 1);
}

}  // namespace
}  // namespace emulated_gpu::testing
