// Five mistakes that real GPUs punish: the emulated one shows each, and the engine makes none.
#include "tests/emulated_gpu/test_support.h"

#include <cublasLt.h>

#include <atomic>
#include <thread>

#include "engine/comm/nccl/nccl_group.h"
#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/step_graph.h"
#include "engine/tensor/tensor.h"
#include "kernels/calls.h"
#include "tests/emulated_gpu/cublas_lt/control.h"
#include "tests/support/expect_error.h"

namespace emulated_gpu::testing {
namespace {

using namespace lockstep;
using lockstep::testing::expect_error;
using runtime::StepGraph;

constexpr Device kGpu{DeviceType::cuda, 0};
constexpr Device kOtherGpu{DeviceType::cuda, 1};

// Statements in a process of their own, which has used no GPU yet.
#define IN_NEW_PROCESS(...)                    \
  ([&] {                                       \
    __VA_ARGS__;                               \
    std::_Exit(::testing::Test::HasFailure()); \
  }())

class Faults : public ::testing::Test {
 protected:
  Faults() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  void TearDown() override {
    cublas_lt::refuse_nothing();
    cudaGetLastError();
  }
};

Tensor matrix(std::size_t rows, std::size_t cols) {
  return Tensor::full({rows, cols}, 1, DType::float32, kGpu);
}

void multiply(const Tensor& a, const Tensor& b, const Tensor& c) {
  using kernels::Transpose;
  a.backend().matmul(a.stream(), {a.matrix(), Transpose::no, b.matrix(), Transpose::no, c.matrix(),
                                  kernels::Write::overwrite});
}

cudaGraph_t captured_on(cudaStream_t stream, const std::function<void()>& work) {
  EXPECT_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  work();
  cudaGraph_t graph = nullptr;
  EXPECT_OK(cudaStreamEndCapture(stream, &graph));
  return graph;
}

__global__ void store(int* to, int value) {
  *to = value;
}
__global__ void wait_for(std::atomic<int>* flag) {
  while (*flag == 0) std::this_thread::yield();
}
__global__ void raise(std::atomic<int>* flag) {
  *flag = 1;
}

// 1. A copy from pageable memory is accepted into a graph, which reads that memory at every launch.

TEST_F(Faults, Fault1IsShownByPlainMemory) {
  const Stream stream;
  const Array<int> array(1);
  int plain = 1;
  cudaGraph_t graph = captured_on(stream, [&] {
    EXPECT_OK(cudaMemcpyAsync(array.data(), &plain, sizeof(int), cudaMemcpyHostToDevice, stream));
  });
  cudaGraphExec_t exec = nullptr;
  EXPECT_OK(cudaGraphInstantiate(&exec, graph, 0));
  plain = 2;  // as whoever gets the memory next would
  EXPECT_OK(cudaGraphLaunch(exec, stream));
  EXPECT_EQ(array.values(), std::vector<int>{2});
  EXPECT_OK(cudaGraphExecDestroy(exec));
  EXPECT_OK(cudaGraphDestroy(graph));
}

TEST_F(Faults, Fault1IsOurErrorThatNamesTheTensor) {
  const Tensor x = matrix(3, 5);
  StepGraph graph({kGpu});
  const auto step = [&] { x.copy_from(Tensor::full({3, 5}, 2, DType::float32)); };
  for (std::size_t i = 0; i < StepGraph::kNumWarmUps; ++i) graph.run(step);
  expect_error(ErrorCode::State, describe(Tensor::full({3, 5}, 2, DType::float32)),
               [&] { graph.run(step); });
}

// 2. Any call of a thread that has named no GPU makes a context on GPU 0.

TEST_F(Faults, Fault2IsShownByAThread) {
  EXPECT_EXIT(IN_NEW_PROCESS({
                EXPECT_OK(cudaSetDevice(1));
                cudaEvent_t event = nullptr;
                EXPECT_OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
                EXPECT_FALSE(has_context(0));
                std::thread([&] { cudaEventQuery(event); }).join();
                EXPECT_TRUE(has_context(0));
              }),
              ::testing::ExitedWithCode(0), "");
}

TEST_F(Faults, Fault2IsMadeByNoThreadOfOurs) {
  EXPECT_EXIT(IN_NEW_PROCESS({
                auto x = Tensor::zeros({1000}, DType::float32, kOtherGpu);
                const auto event = x.stream().record_timed();
                std::thread([&] {
                  event->has_passed();
                  event->wait(runtime::deadline_after(60));
                  event->passed_at_ns();
                  x = {};
                  runtime::logical_device(kOtherGpu).own_memory().release_cached();
                }).join();
                EXPECT_FALSE(has_context(0));
                EXPECT_TRUE(has_context(1));
              }),
              ::testing::ExitedWithCode(0), "");
}

// 3. A heuristic of cuBLASLt may make calls that break a capture.

TEST_F(Faults, Fault3IsShownByACapturedHeuristic) {
  const Stream stream;
  EXPECT_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  cublasLtHandle_t handle = nullptr;
  ASSERT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t layout = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 4, 4, 4);
  cublasLtMatmulPreferenceCreate(&preference);
  cublasLtMatmulHeuristicResult_t found{};
  int num_found = 0;
  EXPECT_EQ(cublasLtMatmulAlgoGetHeuristic(handle, operation, layout, layout, layout, layout,
                                           preference, 1, &found, &num_found),
            CUBLAS_STATUS_INTERNAL_ERROR);
  cudaGraph_t graph = nullptr;
  EXPECT_CUDA(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(stream, &graph));
  cublasLtMatmulPreferenceDestroy(preference);
  cublasLtMatrixLayoutDestroy(layout);
  cublasLtMatmulDescDestroy(operation);
}

TEST_F(Faults, Fault3IsOurErrorForANewProduct) {
  const Tensor a = matrix(4, 4), b = matrix(4, 5), c = matrix(4, 4), d = matrix(4, 5);
  StepGraph graph({kGpu});
  for (std::size_t i = 0; i < StepGraph::kNumWarmUps; ++i) graph.run([&] { multiply(a, a, c); });
  expect_error(ErrorCode::State, "the product [4, 5] x 4 is new and cannot be captured",
               [&] { graph.run([&] { multiply(a, b, d); }); });
}

TEST_F(Faults, Fault3IsOurErrorForARefusedAlgorithm) {
  const Tensor a = matrix(4, 4), c = matrix(4, 4);
  StepGraph graph({kGpu});
  const auto step = [&] { multiply(a, a, c); };
  for (std::size_t i = 0; i < StepGraph::kNumWarmUps; ++i) graph.run(step);
  for (const std::int64_t id : {10, 66, 11, 12}) {
    cublas_lt::refuse(cublas_lt::Refused::product, id, CUBLAS_STATUS_EXECUTION_FAILED);
  }
  expect_error(ErrorCode::State,
               "the product [4, 4] x 4 is refused by cuBLASLt and cannot be captured",
               [&] { graph.run(step); });
  cublas_lt::refuse_nothing();
  graph.run(step);
  EXPECT_TRUE(graph.is_captured());
}

// 4. A kernel is loaded at its first launch, which may wait for kernels that wait for it.

void let_one_kernel_wait_for_another() {
  const Stream first, second;
  std::atomic<int> flag{0};
  EXPECT_OK(launch(first, 1, 1, wait_for, &flag));
  EXPECT_OK(launch(second, 1, 1, raise, &flag));
  first.wait();
}

TEST_F(Faults, Fault4IsShownByKernelsThatWait) {
  EXPECT_DEATH(IN_NEW_PROCESS({
                 setenv("LOCKSTEP_EMULATED_DEADLOCK_SECONDS", "1", 1);
                 setenv("CUDA_MODULE_LOADING", "LAZY", 1);
                 let_one_kernel_wait_for_another();
               }),
               "deadlock: loading a kernel waits for work of its GPU");
  EXPECT_EXIT(IN_NEW_PROCESS({
                setenv("CUDA_MODULE_LOADING", "EAGER", 1);
                let_one_kernel_wait_for_another();
              }),
              ::testing::ExitedWithCode(0), "");
}

// The one place where kernels wait for each other: NCCL's, of ranks that are threads.
TEST_F(Faults, Fault4IsRefusedForRanksThatAreThreads) {
  if (!comm::has_nccl()) GTEST_SKIP() << comm::no_nccl_reason();
  unsetenv("CUDA_MODULE_LOADING");
  comm::NcclGroupOptions options;
  options.world_size = 2;
  options.store = std::make_shared<comm::MemoryStore>();
  const auto meet = [&options](int rank) {
    comm::NcclGroupOptions mine = options;
    mine.rank = rank;
    mine.device = {DeviceType::cuda, rank};
    expect_error(ErrorCode::State, "set CUDA_MODULE_LOADING=EAGER",
                 [&] { comm::make_nccl_communicator(mine); });
  };
  std::thread other([&] { meet(1); });
  meet(0);
  other.join();
}

// 5. What waits for the GPU never returns while a host function waits for the caller.

void let_a_host_function_wait(cudaStream_t stream) {
  static std::atomic<bool> is_there{false};
  const auto wait = [](void*) {
    is_there = true;
    std::promise<void>().get_future().wait();
  };
  EXPECT_OK(cudaLaunchHostFunc(stream, wait, nullptr));
  while (!is_there) std::this_thread::yield();
}

TEST_F(Faults, Fault5IsShownByAWaitingHostFunction) {
  const std::pair<std::function<void()>, const char*> calls[] = {
      {[] { const Array<int> array(1); }, "deadlock: cudaMalloc waits for a host function"},
      {[] {
         void* pinned = nullptr;
         cudaHostAlloc(&pinned, sizeof(int), 0);
       },
       "deadlock: cudaHostAlloc waits for a host function"},
      {[] {
         const Stream other;
         cudaGraph_t graph = captured_on(other, [] {});
         cudaGraphExec_t exec = nullptr;
         cudaGraphInstantiate(&exec, graph, 0);
       },
       "deadlock: cudaGraphInstantiate waits for a host function"},
      {[] {
         const Stream other;
         launch(other, 1, 1, store, static_cast<int*>(nullptr), 1);
       },
       "deadlock: loading a kernel waits for work of its GPU"},
  };
  for (const auto& [call, words] : calls) {
    EXPECT_DEATH(IN_NEW_PROCESS({
                   setenv("LOCKSTEP_EMULATED_DEADLOCK_SECONDS", "1", 1);
                   setenv("CUDA_MODULE_LOADING", "LAZY", 1);
                   const Stream stream;
                   let_a_host_function_wait(stream);
                   call();
                 }),
                 words);
  }
}

TEST_F(Faults, Fault5IsNotMadeByReadyWork) {
  EXPECT_EXIT(IN_NEW_PROCESS({
                setenv("LOCKSTEP_EMULATED_DEADLOCK_SECONDS", "1", 1);
                setenv("CUDA_MODULE_LOADING", "LAZY", 1);
                const Stream stream, other;
                const Array<int> array(2);
                EXPECT_OK(launch(stream, 1, 1, store, array.data(), 0));
                stream.wait();
                Gate gate;
                gate.block(stream);
                EXPECT_OK(launch(stream, 1, 1, store, array.data(), 1));
                EXPECT_OK(launch(other, 1, 1, store, array.data() + 1, 2));
                other.wait();
                gate.open();
                EXPECT_EQ(array.values(), (std::vector<int>{1, 2}));
              }),
              ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace emulated_gpu::testing
