// Traces with known figures, and what is read from them.
#include "tools/torch_trace/rank_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "tests/tools/torch_trace/synthetic_trace.h"

namespace lockstep::tools {
namespace {

using ::testing::HasSubstr;
using testing::Json;
using testing::SyntheticTrace;

constexpr double kMicrosecond = 1e-6;

TEST(RankTrace, SaysWhoseItIs) {
  const RankTrace trace = SyntheticTrace(3, 8).step(5, 100, 50).kernel("gemm", 110, 5).read();
  EXPECT_EQ(trace.rank, 3u);
  EXPECT_EQ(trace.world_size, 8u);
  EXPECT_EQ(trace.backend, "nccl");
  EXPECT_EQ(trace.gpu, "NVIDIA H100 80GB HBM3");
  ASSERT_EQ(trace.steps.size(), 1u);
  EXPECT_EQ(trace.steps[0].number, 5u);
}

TEST(RankTrace, NamesCollectivesAsPyTorchDoes) {
  for (const char* name :
       {"allreduce", "gloo:all_reduce", "ncclKernel_AllReduce_RING_LL_Sum_float"}) {
    EXPECT_EQ(collective_kind(name), "all_reduce");
  }
  EXPECT_EQ(collective_kind("_allgather_base"), "all_gather");
  EXPECT_EQ(collective_kind("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"), "reduce_scatter");
  EXPECT_EQ(collective_kind("nccl:all_to_all"), "all_to_all");
  EXPECT_EQ(collective_kind("ncclDevKernel_SendRecv"), "send_recv");
  EXPECT_EQ(collective_kind("gloo:reduce"), "reduce");
  EXPECT_EQ(collective_kind("ncclDevKernel_Generic"), "collective");
}

TEST(RankTrace, KnowsTheSizesOfTypes) {
  EXPECT_EQ(dtype_bytes("Float"), 4);
  EXPECT_EQ(dtype_bytes("float"), 4);
  EXPECT_EQ(dtype_bytes("c10::BFloat16"), 2);
  EXPECT_EQ(dtype_bytes("BFloat16"), 2);
  EXPECT_EQ(dtype_bytes("long int"), 8);
  EXPECT_EQ(dtype_bytes("Float8_e4m3fn"), 1);
  EXPECT_EQ(dtype_bytes("Quaternion"), 0);
}

TEST(RankTrace, TakesOperatorsThatComputeButNotTheirWrappers) {
  EXPECT_TRUE(is_computing_operator("aten::mm"));
  EXPECT_TRUE(is_computing_operator("fsdp::all_gather_copy_in"));
  EXPECT_FALSE(is_computing_operator("AddmmBackward0"));
  EXPECT_FALSE(is_computing_operator("autograd::engine::evaluate_function: AddmmBackward0"));
  EXPECT_FALSE(is_computing_operator("c10d::allreduce_"));
  EXPECT_FALSE(is_computing_operator("_c10d_functional::wait_tensor"));
}

TEST(RankTrace, CountsACollectiveOnceThoughItCopiesOnItsThread) {
  const RankTrace trace = SyntheticTrace(0, 2, "gloo")
                              .step(0, 0, 100)
                              .op("aten::mm", 10, 20)
                              .op("aten::addmm", 5, 30)
                              .op("aten::copy_", 45, 5, 9)
                              .gloo_all_reduce(40, 20, 1000)
                              .read();
  ASSERT_EQ(trace.computation.size(), 1u);
  EXPECT_EQ(trace.names[trace.computation[0].name], "aten::addmm");
  EXPECT_NEAR(trace.computation[0].seconds(), 30 * kMicrosecond, 1e-12);
  ASSERT_EQ(trace.collectives.size(), 1u);
  EXPECT_EQ(trace.collectives[0].num_bytes, 4000);
  EXPECT_EQ(trace.collectives[0].num_ranks, 2u);
  EXPECT_FALSE(trace.has_gpu());
}

TEST(RankTrace, TakesTheSizeOfAnOlderNcclKernelFromTheCallThatLaunchedIt) {
  const auto call = [](const char* name, int elements) {
    return std::pair(std::string(name), Json{{"Input Dims", Json::array({Json::array({elements})})},
                                             {"Input type", Json::array({"c10::Half"})}});
  };
  SyntheticTrace trace(0, 4);
  trace.step(0, 0, 100).kernel("gemm", 10, 5);
  for (const auto& [begin, name, elements] :
       {std::tuple(20, "nccl:all_reduce", 500), std::tuple(30, "nccl:_all_gather_base", 100)}) {
    const auto [text, args] = call(name, elements);
    trace.event("user_annotation", text, 1, begin, 5, args);
    trace.event("cuda_runtime", "cudaLaunchKernelExC", 1, begin + 2, 1, {{"correlation", begin}});
  }
  trace.kernel("ncclKernel_AllGather_RING_LL", 60, 5, {{"correlation", 30}});
  trace.kernel("ncclKernel_AllReduce_RING_LL_Sum_half", 70, 5, {{"correlation", 20}});
  const RankTrace read = trace.read();
  ASSERT_EQ(read.collectives.size(), 2u);
  EXPECT_EQ(read.collectives[0].kind, "all_gather");
  EXPECT_EQ(read.collectives[0].num_bytes, 800) << "of all four ranks together";
  EXPECT_EQ(read.collectives[1].kind, "all_reduce");
  EXPECT_EQ(read.collectives[1].num_bytes, 1000);
}

TEST(RankTrace, AGpusStepBeginsWithTheFirstKernelThatWasLaunchedInIt) {
  SyntheticTrace trace;
  trace.step(0, 0, 100).step(1, 100, 100);
  const auto run = [&](int correlation, double launch, double begin, double duration) {
    trace.event("cuda_runtime", "cudaLaunchKernel", 1, launch, 1, {{"correlation", correlation}});
    trace.kernel("gemm", begin, duration, {{"correlation", correlation}});
  };
  run(1, 10, 15, 60);
  run(2, 20, 75, 300);
  run(3, 110, 375, 40);
  run(4, 120, 415, 85);
  const RankTrace read = trace.read();
  ASSERT_EQ(read.steps.size(), 2u);
  EXPECT_NEAR(read.steps[0].time.begin, 15 * kMicrosecond, 1e-12);
  EXPECT_NEAR(read.steps[0].time.end, 375 * kMicrosecond, 1e-12);
  EXPECT_NEAR(read.steps[1].time.end, 500 * kMicrosecond, 1e-12);
}

TEST(RankTrace, WithoutStepsSaysHowToRecordThem) {
  try {
    SyntheticTrace().kernel("gemm", 0, 1).read();
    FAIL() << "a trace without steps was read";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("schedule=torch.profiler.schedule(wait=1, warmup=1"));
  }
}

}  // namespace
}  // namespace lockstep::tools
