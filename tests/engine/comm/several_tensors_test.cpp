// A list of tensors in one call.
#include <gmock/gmock.h>

#include <latch>

#include "engine/trace/counters.h"
#include "tests/engine/comm/comm_test_data.h"
#include "tests/support/expect_error.h"
#include "tests/support/run_ranks.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::errors_of_ranks;
using ::lockstep::testing::expect_error;
using ::lockstep::testing::run_ranks;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr std::array kLaunches{Launch::blocking, Launch::async};

// Of every type that can be reduced, one of them empty.
std::vector<Tensor> mixed_values(int rank) {
  std::vector<Tensor> tensors;
  std::size_t length = 0;
  for (const DType dtype : kReducibleTypes) {
    tensors.push_back(small_values(rank, length, dtype));
    length += 37;
  }
  return tensors;
}

std::vector<double> doubles_of(const Tensor& tensor) {
  return tensor.to(DType::float64).to_vector<double>();
}

TEST(SeveralTensors, AreReducedAsBySingleCalls) {
  for (const Launch launch : kLaunches) {
    run_ranks(3, [&](Communicator& communicator) {
      const std::vector<Tensor> tensors = mixed_values(communicator.rank());
      CollectiveOptions options;
      options.launch = launch;
      communicator.all_reduce(tensors, options).wait();
      for (const Tensor& tensor : tensors) {
        const std::vector<double> sums = doubles_of(tensor);
        for (std::size_t i = 0; i < sums.size(); ++i) {
          ASSERT_EQ(sums[i], reduced_small_value(ReduceOp::sum, 3, i));
        }
      }
    });
  }
}

TEST(SeveralTensors, BecomeTheRootsInEveryType) {
  for (const Launch launch : kLaunches) {
    run_ranks(3, [&](Communicator& communicator) {
      std::vector<Tensor> tensors = mixed_values(communicator.rank());
      tensors.push_back(
          Tensor::full({3}, communicator.rank(), DType::uint8, test_device(communicator.rank())));
      communicator.broadcast(tensors, 2, launch).wait();
      const std::vector<Tensor> expected = mixed_values(2);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_EQ(doubles_of(tensors[i]), doubles_of(expected[i]));
      }
      EXPECT_THAT(tensors.back().to_vector<std::uint8_t>(), Each(2));
    });
  }
}

TEST(SeveralTensors, CountAsOneCallEach) {
  trace::reset_collective_counts();
  run_ranks(2, [](Communicator& communicator) {
    communicator.broadcast(std::vector<Tensor>{}, 0).wait();
    communicator.broadcast(mixed_values(communicator.rank()), 0).wait();
  });
  const std::vector<trace::CollectiveCount> counts = trace::collective_counts();
  ASSERT_EQ(counts.size(), 2u) << "one operation of two ranks";
  for (const trace::CollectiveCount& count : counts) {
    EXPECT_EQ(count.num_calls, kReducibleTypes.size()) << count.operation;
  }
}

TEST(SeveralTensors, ARankWithAnotherListIsNamedWithItsFirstCallThatDiffers) {
  const auto errors = errors_of_ranks(3, [](Communicator& communicator) {
    std::vector<Tensor> tensors = mixed_values(communicator.rank());
    if (communicator.rank() == 1) tensors[3] = small_values(1, 5, DType::float16);
    communicator.all_reduce(tensors);
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::Comm);
    EXPECT_THAT(error->what(), HasSubstr("rank 1 called all_reduce #3 of 5 float16 (sum) while "
                                         "rank 0 called all_reduce #3 of 111 float16 (sum)"));
  }
}

TEST(SeveralTensors, ARankWithALongerListIsNamedByTheNextCall) {
  const auto errors = errors_of_ranks(2, [](Communicator& communicator) {
    std::vector<Tensor> tensors = mixed_values(communicator.rank());
    if (communicator.rank() == 0) tensors.pop_back();
    CollectiveOptions options;
    options.launch = Launch::async;
    communicator.all_reduce(tensors, options).wait();
    communicator.barrier();
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), HasSubstr("rank 1 called all_reduce #5 of 185 int64 (sum) while "
                                         "rank 0 called barrier #5"));
  }
}

TEST(SeveralTensors, OneWorkWaitsForAllOfThem) {
  std::latch has_looked(1);
  run_ranks(2, [&](Communicator& communicator) {
    const std::vector<Tensor> tensors = mixed_values(communicator.rank());
    if (communicator.rank() == 1) has_looked.wait();
    const Work work = communicator.broadcast(tensors, 1, Launch::async);
    if (communicator.rank() == 0) {
      EXPECT_FALSE(work.is_done());
      expect_error(ErrorCode::Timeout, "broadcast #0 of 0 float32 from rank 1 was not done",
                   [&] { work.wait(0.01); });
      has_looked.count_down();
    }
    work.wait();
    EXPECT_EQ(doubles_of(tensors.back()), doubles_of(mixed_values(1).back()));
    EXPECT_TRUE(work.is_done());
  });
}

TEST(SeveralTensors, AMistakeInOneIsFoundBeforeAnyIsMoved) {
  run_ranks(2, [](Communicator& communicator) {
    const Tensor good = Tensor::full({2}, 1, DType::float32, test_device(communicator.rank()));
    expect_error(ErrorCode::Usage, "needs a tensor", [&] {
      communicator.all_reduce(std::vector<Tensor>{good, {}});
    });
    expect_error(ErrorCode::DType, "found uint8", [&] {
      communicator.all_reduce(std::vector<Tensor>{good, good.to(DType::uint8)});
    });
    expect_error(ErrorCode::Usage, "must not overlap", [&] {
      communicator.broadcast(std::vector<Tensor>{good, good.rows(1, 2)}, 0);
    });
    expect_error(ErrorCode::Usage, "the root must be a rank in 0 ... 1",
                 [&] { communicator.broadcast(std::vector<Tensor>{good}, 2); });
    EXPECT_THAT(good.to_vector<float>(), Each(1));
    communicator.all_reduce(std::vector<Tensor>{good.rows(0, 1), good.rows(1, 2)});
    EXPECT_THAT(good.to_vector<float>(), Each(2));
  });
}

}  // namespace
}  // namespace lockstep::comm
