#include <gmock/gmock.h>

#include "tests/engine/comm/comm_test_data.h"
#include "tests/support/run_ranks.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::run_ranks;

class Collectives : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(WorldSizes, Collectives, ::testing::ValuesIn(kWorldSizes));

TEST_P(Collectives, MoveAndReduceBuffersOfAnyLength) {
  constexpr std::array kTypes{DType::float32};
  run_ranks(GetParam(), [&](Communicator& communicator) {
    for (const std::size_t length : kLengths) {
      check_moves(communicator, kTypes, test_device(communicator.rank()), length);
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
