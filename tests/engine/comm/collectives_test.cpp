#include <gmock/gmock.h>

#include "tests/engine/comm/comm_test_data.h"
#include "tests/support/run_ranks.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::run_ranks;

class Collectives : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(WorldSizes, Collectives, ::testing::ValuesIn(kWorldSizes));

TEST_P(Collectives, BroadcastGivesEveryRankTheRootsBuffer) {
  const int world_size = GetParam();
  run_ranks(world_size, [&](Communicator& communicator) {
    for (const std::size_t num_elements : kLengths) {
      for (const int root : {0, world_size / 2, world_size - 1}) {
        const Tensor buffer = small_values(communicator.rank() + 3, num_elements, DType::float32);
        communicator.broadcast(buffer, root);
        EXPECT_EQ(buffer.to_vector<double>(),
                  small_values(root + 3, num_elements, DType::float32).to_vector<double>());
      }
    }
  });
}

TEST_P(Collectives, AllGatherPutsTheInputsBehindEachOtherInRankOrder) {
  const int world_size = GetParam();
  run_ranks(world_size, [&](Communicator& communicator) {
    for (const std::size_t num_elements : kLengths) {
      const Tensor input = small_values(communicator.rank(), num_elements, DType::float64);
      const Tensor output = Tensor::zeros({static_cast<std::size_t>(world_size), num_elements},
                                          DType::float64, input.device());
      communicator.all_gather(input, output);
      const std::vector<double> gathered = output.to_vector<double>();
      for (std::size_t i = 0; i < gathered.size(); ++i) {
        ASSERT_EQ(gathered[i], small_value(static_cast<int>(i / num_elements), i % num_elements));
      }
    }
  });
}

TEST_P(Collectives, ReduceScatterGivesEachRankItsPartOfTheSumAndKeepsTheInput) {
  const int world_size = GetParam();
  run_ranks(world_size, [&](Communicator& communicator) {
    const auto n = static_cast<std::size_t>(world_size);
    const auto rank = static_cast<std::size_t>(communicator.rank());
    for (const std::size_t num_elements : kLengths) {
      const Tensor input = small_values(communicator.rank(), n * num_elements, DType::float64);
      const std::vector<double> before = input.to_vector<double>();
      const Tensor output = Tensor::zeros({num_elements}, DType::float64, input.device());
      communicator.reduce_scatter(input, output);
      EXPECT_EQ(input.to_vector<double>(), before);
      const std::vector<double> part = output.to_vector<double>();
      for (std::size_t i = 0; i < num_elements; ++i) {
        double sum = 0;
        for (int r = 0; r < world_size; ++r) sum += small_value(r, rank * num_elements + i);
        ASSERT_EQ(part[i], sum);
      }
    }
  });
}

TEST(Collectives, MoveEveryDType) {
  constexpr std::array kTypes{DType::uint8, DType::bfloat16, DType::float16, DType::int64};
  run_ranks(4, [&](Communicator& communicator) {
    check_moves(communicator, kTypes, test_device(communicator.rank()));
  });
}

TEST(Collectives, NobodyPassesABarrierBeforeEverybodyHasReachedIt) {
  std::atomic<int> num_arrived{0};
  run_ranks(5, [&](Communicator& communicator) {
    for (int round = 1; round <= 50; ++round) {
      ++num_arrived;
      communicator.barrier();
      EXPECT_EQ(num_arrived.load(), 5 * round);
      communicator.barrier();
    }
  });
}

TEST(CollectiveVersions, CountAChangeOfWhatIsWrittenAndOfNothingElse) {
  run_ranks(2, [](Communicator& communicator) {
    const bool is_root = communicator.rank() == 1;
    const Tensor part = Tensor::zeros({3});
    const Tensor whole = Tensor::zeros({6});
    const auto changes_of = [](const Tensor& tensor, const auto& call) {
      const std::uint64_t before = tensor.version();
      call();
      return tensor.version() - before;
    };
    EXPECT_GT(changes_of(part, [&] { communicator.all_reduce(part); }), 0u);
    EXPECT_EQ(changes_of(part, [&] { communicator.broadcast(part, 1); }) == 0, is_root);
    EXPECT_EQ(changes_of(part, [&] { communicator.all_gather(part, whole); }), 0u);
    EXPECT_GT(changes_of(whole, [&] { communicator.all_gather(part, whole); }), 0u);
    EXPECT_EQ(changes_of(whole, [&] { communicator.reduce_scatter(whole, part); }), 0u);
    EXPECT_GT(changes_of(part, [&] { communicator.reduce_scatter(whole, part); }), 0u);
    const std::uint64_t moved = changes_of(
        part, [&] { is_root ? communicator.send(part, 0) : communicator.recv(part, 1); });
    EXPECT_EQ(moved == 0, is_root);
  });
}

}  // namespace
}  // namespace lockstep::comm
