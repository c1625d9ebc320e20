#include "tests/engine/comm/comm_test_data.h"
#include "tests/engine/comm/nccl/nccl_ranks.h"

namespace lockstep::comm {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr std::array kOps{ReduceOp::sum, ReduceOp::average, ReduceOp::product, ReduceOp::min,
                          ReduceOp::max};

class NcclCollectives : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_GPUS(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(WorldSizes, NcclCollectives, ::testing::Values(1, 2, 4));

TEST_P(NcclCollectives, AllReduceEveryOpInEveryTypeBlockingAndNot) {
  NcclRanks().run(GetParam(), [](Communicator& group) {
    for (const DType dtype : kReducibleTypes) {
      for (const ReduceOp op : kOps) {
        if (op == ReduceOp::average && !is_floating_point(dtype)) continue;
        for (const std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{101}}) {
          const Tensor buffer = small_values(group.rank(), length, dtype).to(gpu_of(group));
          CollectiveOptions options;
          options.op = op;
          options.launch = length == 1 ? Launch::blocking : Launch::async;
          group.all_reduce(buffer, options).wait();
          const std::vector<double> reduced = buffer.to(DType::float64).to_vector<double>();
          for (std::size_t i = 0; i < length; ++i) {
            ASSERT_EQ(reduced[i], reduced_small_value(op, group.world_size(), i));
          }
        }
      }
    }
  });
}

TEST_P(NcclCollectives, GatherScatterAndBroadcast) {
  NcclRanks().run(GetParam(), [](Communicator& group) {
    const auto n = static_cast<std::size_t>(group.world_size());
    const auto rank = static_cast<std::size_t>(group.rank());
    const Device gpu = gpu_of(group);
    for (const DType dtype : {DType::uint8, DType::bfloat16, DType::int64}) {
      const Tensor mine = Tensor::full({3}, group.rank() + 1, dtype, gpu);
      const Tensor all = Tensor::zeros({3 * n}, dtype, gpu);
      group.all_gather(mine, all);
      group.all_gather(all.rows(3 * rank, 3 * rank + 3), all, Launch::async).wait();
      const std::vector<double> gathered = all.to(DType::float64).to_vector<double>();
      for (std::size_t i = 0; i < 3 * n; ++i)
        ASSERT_EQ(gathered[i], static_cast<double>(i / 3 + 1));
      group.broadcast(mine, group.world_size() - 1);
      EXPECT_THAT(mine.to(DType::float64).to_vector<double>(), Each(static_cast<double>(n)));
    }
    const Tensor input = small_values(group.rank(), 5 * n, DType::float64).to(gpu);
    const Tensor output = Tensor::zeros({5}, DType::float64, gpu);
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::max}) {
      CollectiveOptions options;
      options.op = op;
      group.reduce_scatter(input, output, options);
      const std::vector<double> part = output.to_vector<double>();
      for (std::size_t i = 0; i < 5; ++i) {
        ASSERT_EQ(part[i], reduced_small_value(op, group.world_size(), rank * 5 + i));
      }
    }
  });
}

TEST(NcclGroup, SaysWhichNcclItUsesAndLeavesThePlanToIt) {
  LOCKSTEP_NEEDS_GPUS(1);
  NcclRanks().run(1, [](Communicator& group) {
    EXPECT_THAT(group.description(), ::testing::MatchesRegex("nccl 2\\.[0-9]+\\.[0-9]+"));
    EXPECT_EQ(group.plan_for(100), plan::AllReducePlan::automatic);
  });
}

TEST(NcclGroup, RefusesTensorsOfOtherDevicesNamedPlansAndMessages) {
  LOCKSTEP_NEEDS_GPUS(1);
  const auto refuse = [](const std::function<void(Communicator&)>& fn) {
    return std::string(NcclRanks().errors_of(1, fn)[0].value().what());
  };
  EXPECT_THAT(refuse([](Communicator& group) { group.all_reduce(Tensor::zeros({2})); }),
              HasSubstr("this rank's NCCL communicator serves cuda:0, found"));
  EXPECT_THAT(refuse([](Communicator& group) {
                CollectiveOptions options;
                options.plan = plan::AllReducePlan::ring;
                group.all_reduce(Tensor::zeros({2}, DType::float32, gpu_of(group)), options);
              }),
              HasSubstr("NCCL chooses its own algorithm, found the plan ring"));
  EXPECT_THAT(refuse([](Communicator& group) {
                group.send(Tensor::zeros({2}, DType::float32, gpu_of(group)), 0);
              }),
              HasSubstr("NCCL carries only collectives here; for messages use --comm own"));
}

}  // namespace
}  // namespace lockstep::comm
