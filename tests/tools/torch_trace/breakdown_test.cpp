// The parts of steps, waits, the slowest rank and advice, on traces with known figures.
#include "tools/torch_trace/breakdown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/core/error.h"
#include "tests/tools/torch_trace/synthetic_trace.h"
#include "tools/torch_trace/advice.h"
#include "tools/torch_trace/ranks.h"

namespace lockstep::tools {
namespace {

using ::testing::HasSubstr;
using testing::SyntheticTrace;

double microseconds(double seconds) {
  return std::round(seconds * 1e9) / 1e3;
}

// Each part of a step of 100 us is of another length.
TEST(Breakdown, GivesEachInstantOfAGpusStepToOnePart) {
  SyntheticTrace trace(0, 2);
  trace.step(0, 0, 100)
      .kernel("void gemm<float>(int)", 10, 30)
      .nccl_all_reduce(30, 25, 1000, 2)
      .event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 7, 50, 12)
      .event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1,
             60, 10)
      .op("aten::copy_", 65, 15);
  const RankBreakdown breakdown = break_down(trace.read());
  ASSERT_EQ(breakdown.steps.size(), 1u);
  const TraceParts& parts = breakdown.steps[0];
  EXPECT_EQ(microseconds(parts.computation), 30);
  EXPECT_EQ(microseconds(parts.exposed_comm), 15);
  EXPECT_EQ(microseconds(parts.hidden_comm), 10);
  EXPECT_EQ(microseconds(parts.copies), 7);
  EXPECT_EQ(microseconds(parts.loader), 8);
  EXPECT_EQ(microseconds(parts.host), 10);
  EXPECT_EQ(microseconds(parts.idle), 30);
  EXPECT_EQ(microseconds(parts.step()), 100);
  ASSERT_EQ(breakdown.calls.size(), 1u);
  EXPECT_EQ(microseconds(breakdown.calls[0].hidden_seconds), 10);
  EXPECT_EQ(breakdown.calls[0].hidden_by, "void gemm<float>(int)");
  ASSERT_TRUE(breakdown.device);
  EXPECT_EQ(microseconds(breakdown.device->span), 52);
  EXPECT_EQ(microseconds(breakdown.device->idle), 0);
  EXPECT_EQ(microseconds(breakdown.device->other), 22);
}

TEST(Breakdown, OnTheCpuTheLoadersOperatorsAreNotComputation) {
  SyntheticTrace trace(0, 2, "gloo");
  trace.step(0, 0, 100)
      .event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1, 0,
             10)
      .op("aten::stack", 2, 5)
      .op("autograd::engine::evaluate_function: AddmmBackward0", 20, 40)
      .op("aten::mm", 25, 20)
      .gloo_all_reduce(40, 40, 1000);
  const TraceParts parts = break_down(trace.read()).steps[0];
  EXPECT_EQ(microseconds(parts.loader), 10);
  EXPECT_EQ(microseconds(parts.computation), 20);
  EXPECT_EQ(microseconds(parts.exposed_comm), 35);
  EXPECT_EQ(microseconds(parts.hidden_comm), 5);
  EXPECT_EQ(microseconds(parts.host), 5);
  EXPECT_EQ(microseconds(parts.idle), 30);
}

// Two ranks, of which rank 1 computes longer from step 1 on; the clock of rank 1 is ahead.
TraceRun run_with_slow_rank(double ahead) {
  std::vector<RankBreakdown> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    SyntheticTrace trace(rank, 2);
    for (int step = 0; step < 4; ++step) {
      const double begin = 1000.0 * step + (rank == 1 ? ahead : 0);
      const double work = rank == 1 && step > 0 ? 600 : 400;
      const double end = step > 0 ? 800 : 600;
      trace.step(step, begin, 1000)
          .kernel("gemm", begin, work)
          .nccl_all_reduce(begin + work, end - work, 25'000'000, 2);
    }
    ranks.push_back(break_down(trace.read()));
  }
  return join_ranks(std::move(ranks));
}

TEST(Ranks, TheSlowestIsWhomTheOthersWaitForSinceAStep) {
  const TraceRun run = run_with_slow_rank(0);
  EXPECT_EQ(run.num_matched, 4u);
  EXPECT_TRUE(run.clock_offsets.empty());
  EXPECT_EQ(microseconds(run.ranks[0].steps[0].waiting), 0);
  EXPECT_EQ(microseconds(run.ranks[0].steps[1].waiting), 200);
  EXPECT_EQ(microseconds(run.ranks[1].steps[1].waiting), 0);
  ASSERT_TRUE(run.slowest);
  EXPECT_EQ(run.slowest->rank, 1u);
  EXPECT_EQ(run.slowest->num_steps, 3u);
  EXPECT_EQ(run.slowest->since, 1u);
  EXPECT_EQ(microseconds(run.slowest->wait_seconds), 150) << "200 in three of four steps";
  EXPECT_EQ(run.slowest->part, "computation");
  EXPECT_EQ(microseconds(run.slowest->more_seconds), 200);
}

TEST(Ranks, ClocksThatDifferAreSetByTheEndsOfCollectives) {
  const TraceRun run = run_with_slow_rank(123456);
  ASSERT_EQ(run.clock_offsets.size(), 2u);
  EXPECT_EQ(microseconds(run.clock_offsets[1]), -123456);
  EXPECT_EQ(microseconds(run.ranks[0].steps[1].waiting), 200);
  EXPECT_EQ(run.slowest->rank, 1u);
}

TEST(Ranks, AnAllToAllOfUnequalPartsIsOneCollective) {
  std::vector<RankBreakdown> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    SyntheticTrace trace(rank, 2);
    trace.step(0, 0, 1000)
        .kernel("gemm", 0, 100)
        .kernel("ncclDevKernel_SendRecv", rank == 0 ? 200 : 500, rank == 0 ? 500 : 200,
                {{"Collective name", "all_to_all"},
                 {"In msg nelems", 1000 + rank},
                 {"Group size", 2},
                 {"dtype", "Float"}});
    ranks.push_back(break_down(trace.read()));
  }
  const TraceRun run = join_ranks(std::move(ranks));
  EXPECT_EQ(run.num_matched, 1u);
  EXPECT_EQ(microseconds(run.ranks[0].steps[0].waiting), 300);
}

TEST(Ranks, BandwidthLeavesOutTheWaiting) {
  const std::vector<CollectiveGroup> groups = collective_groups(run_with_slow_rank(0));
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].num_bytes, 1e8);
  EXPECT_EQ(groups[0].calls, 1);
  EXPECT_EQ(microseconds(groups[0].transfer_seconds()), 200);
  EXPECT_NEAR(groups[0].bus_bytes_per_second(), 1e8 / 200e-6, 1e6);
}

TEST(Ranks, BusBandwidthCountsAsNcclsTestsDo) {
  const auto rate = [](const char* kind) {
    CollectiveGroup group;
    group.kind = kind;
    group.num_bytes = 8e9;
    group.num_ranks = 8;
    group.seconds = 2;
    group.wait_seconds = 1;
    return group.bus_bytes_per_second();
  };
  EXPECT_DOUBLE_EQ(rate("all_reduce"), 14e9);
  EXPECT_DOUBLE_EQ(rate("all_gather"), 7e9);
  EXPECT_DOUBLE_EQ(rate("broadcast"), 8e9);
}

TEST(Ranks, ARunsMissingRanksAreNamed) {
  std::vector<RankBreakdown> ranks;
  for (const int rank : {0, 1, 3}) {
    ranks.push_back(break_down(SyntheticTrace(rank, 4).step(0, 0, 10).read()));
  }
  EXPECT_EQ(join_ranks(std::move(ranks)).missing_ranks, std::vector<std::size_t>{2});
}

TEST(Advice, SaysOfEachChangeWhatItCanGain) {
  const TraceRun run = run_with_slow_rank(0);
  const std::vector<Change> changes = best_changes(run, collective_groups(run));
  ASSERT_EQ(changes.size(), 3u);
  // Nothing runs in 250 us of a step (400, 200, 200, 200), the exposed transfer is 200.
  EXPECT_EQ(microseconds(changes[0].seconds), 250);
  EXPECT_THAT(changes[0].what, HasSubstr("keep the GPU fed"));
  EXPECT_EQ(microseconds(changes[1].seconds), 200);
  EXPECT_THAT(changes[1].what, HasSubstr("overlap"));
  EXPECT_EQ(microseconds(changes[2].seconds), 100);
  EXPECT_THAT(changes[2].what, HasSubstr("send half the bytes"));
}

TEST(Advice, IsEmptyWhereAllIsComputation) {
  std::vector<RankBreakdown> ranks;
  ranks.push_back(break_down(SyntheticTrace().step(0, 0, 1000).kernel("gemm", 0, 990).read()));
  const TraceRun run = join_ranks(std::move(ranks));
  EXPECT_TRUE(best_changes(run, collective_groups(run)).empty());
}

}  // namespace
}  // namespace lockstep::tools
