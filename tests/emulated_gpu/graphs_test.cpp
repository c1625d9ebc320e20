#include "tests/emulated_gpu/test_support.h"

namespace emulated_gpu::testing {
namespace {

__global__ void append(int* list, int value) {
  list[++list[0]] = value;
}
__global__ void store(int* to, int value) {
  *to = value;
}
__global__ void add(const int* a, const int* b, int* sum) {
  *sum = *a + *b;
}

class Graph {
 public:
  explicit Graph(cudaGraph_t graph) : graph_(graph) {
    EXPECT_OK(cudaGraphInstantiate(&exec_, graph_, 0));
  }
  ~Graph() {
    cudaGraphExecDestroy(exec_);
    cudaGraphDestroy(graph_);
  }
  void launch(cudaStream_t stream) const { EXPECT_OK(cudaGraphLaunch(exec_, stream)); }
  std::size_t num_nodes() const {
    std::size_t result = 0;
    EXPECT_OK(cudaGraphGetNodes(graph_, nullptr, &result));
    return result;
  }

 private:
  cudaGraph_t graph_;
  cudaGraphExec_t exec_ = nullptr;
};

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

TEST(Graphs, RunWhatWasCapturedAsOftenAsLaunched) {
  const Stream stream;
  const Array<int> list(std::vector<int>(5));
  begin(stream);
  for (int value = 1; value <= 2; ++value) {  // arguments are kept by value
    EXPECT_OK(emulated_gpu::testing::launch(stream, 1, 1, append, list.data(), value));
  }
  const Graph graph(end(stream));
  EXPECT_EQ(graph.num_nodes(), 2);
  EXPECT_EQ(list.values()[0], 0);  // nothing ran
  reset_counters();
  graph.launch(stream);
  graph.launch(stream);
  EXPECT_EQ(list.values(), (std::vector<int>{4, 1, 2, 1, 2}));
  EXPECT_EQ(counters().num_graph_launches, 2);
  EXPECT_EQ(counters().num_kernels, 4);
}

TEST(Graphs, TakeInOtherStreamsThroughEvents) {
  const Stream first, second;
  const Array<int> a(1), b(1), sum(1);
  const Event fork, join;
  begin(first);
  EXPECT_OK(cudaEventRecord(fork, first));
  EXPECT_OK(cudaStreamWaitEvent(second, fork, 0));
  EXPECT_OK(launch(first, 1, 1, store, a.data(), 3));
  EXPECT_OK(launch(second, 1, 1, store, b.data(), 4));
  EXPECT_OK(cudaEventRecord(join, second));
  EXPECT_OK(cudaStreamWaitEvent(first, join, 0));
  EXPECT_OK(launch(first, 1, 1, add, a.data(), b.data(), sum.data()));
  const Graph graph(end(first));
  EXPECT_EQ(graph.num_nodes(), 3);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
  EXPECT_OK(cudaStreamIsCapturing(second, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  for (int i = 0; i < 20; ++i) {
    EXPECT_OK(cudaMemsetAsync(sum.data(), 0, sizeof(int), first));
    EXPECT_OK(cudaMemsetAsync(b.data(), 0, sizeof(int), first));
    graph.launch(first);
    first.wait();
    EXPECT_EQ(sum.values(), std::vector<int>{7});
  }
}

TEST(Graphs, MustJoinWhatTheyFork) {
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

TEST(Graphs, CannotWaitForWorkOutside) {
  const Stream first, second;
  const Event outside;
  EXPECT_OK(cudaEventRecord(outside, second));
  begin(first);
  EXPECT_CUDA(cudaErrorStreamCaptureIsolation, cudaStreamWaitEvent(first, outside, 0));
  expect_end(cudaErrorStreamCaptureInvalidated, first);
}

TEST(Graphs, CannotMergeTwoCaptures) {
  const Stream first, second;
  const Event event;
  begin(first);
  begin(second);
  EXPECT_OK(cudaEventRecord(event, second));
  EXPECT_CUDA(cudaErrorStreamCaptureMerge, cudaStreamWaitEvent(first, event, 0));
  expect_end(cudaErrorStreamCaptureInvalidated, first);
  expect_end(cudaErrorStreamCaptureInvalidated, second);
}

TEST(Graphs, AreEndedWhereTheyBegan) {
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
TEST(Graphs, ForbidUnsafeCallsMeanwhile) {
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

TEST(Graphs, LeaveOtherThreadsAloneUnlessTheyAreGlobal) {
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

TEST(Graphs, LetARelaxedThreadDoAnything) {
  const Stream stream;
  begin(stream);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  EXPECT_OK(cudaThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, cudaStreamCaptureModeGlobal);
  { const Array<int> memory(1); }
  EXPECT_OK(cudaThreadExchangeStreamCaptureMode(&mode));
  EXPECT_OK(cudaGraphDestroy(end(stream)));
}

TEST(Graphs, CannotAskForCapturedEvents) {
  const Stream stream;
  const Event event;
  begin(stream, cudaStreamCaptureModeRelaxed);
  EXPECT_OK(cudaEventRecord(event, stream));
  EXPECT_CUDA(cudaErrorCapturedEvent, cudaEventQuery(event));
  expect_end(cudaErrorStreamCaptureInvalidated, stream);
}

TEST(Graphs, CopyHostMemoryAgainInEveryLaunchAndRefuseToWriteIt) {
  const Stream stream;
  const Array<int> array(1);
  const Pinned<int> pinned(1);
  int plain = 0;
  begin(stream);
  EXPECT_OK(
      cudaMemcpyAsync(array.data(), pinned.data(), sizeof(int), cudaMemcpyHostToDevice, stream));
  const Graph graph(end(stream));
  for (int value = 1; value <= 2; ++value) {
    pinned[0] = value;
    graph.launch(stream);
    EXPECT_EQ(array.values(), std::vector<int>{value});
  }
  begin(stream);
  EXPECT_OK(cudaMemcpyAsync(array.data(), &plain, sizeof(int), cudaMemcpyHostToDevice, stream));
  const Graph of_plain(end(stream));
  for (plain = 3; plain <= 4; ++plain) {
    of_plain.launch(stream);
    EXPECT_EQ(array.values(), std::vector<int>{plain});
  }
  begin(stream);
  EXPECT_CUDA(cudaErrorStreamCaptureUnsupported,
              cudaMemcpyAsync(&plain, array.data(), sizeof(int), cudaMemcpyDeviceToHost, stream));
  expect_end(cudaErrorStreamCaptureInvalidated, stream);
}

TEST(Graphs, CannotUseTheDefaultStreamBesideABlockingOne) {
  const Stream blocking(cudaStreamDefault);
  const Array<int> array(1);
  begin(blocking);
  EXPECT_CUDA(cudaErrorStreamCaptureImplicit, launch(nullptr, 1, 1, store, array.data(), 1));
  expect_end(cudaErrorStreamCaptureInvalidated, blocking);
}

}  // namespace
}  // namespace emulated_gpu::testing
