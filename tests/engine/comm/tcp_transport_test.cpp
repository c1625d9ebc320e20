#include <gmock/gmock.h>

#include <numeric>

#include "tests/engine/comm/comm_test_data.h"
#include "tests/engine/comm/tcp_ranks.h"

namespace lockstep::comm {
namespace {

constexpr std::array<DType, 4> kDTypes{DType::float32, DType::float64, DType::int32, DType::int64};

class TcpAllReduce : public ::testing::TestWithParam<int> {};

TEST_P(TcpAllReduce, HasTheBitsOfTheSerialInterpreterForEveryPlanAndLength) {
  const int world_size = GetParam();
  for (const std::size_t num_elements : {0UL, 1UL, 101UL, 4096UL, 131'072UL}) {
    const PlanBits bits(world_size, num_elements, kPlans,
                        plan::choose_all_reduce_plan(world_size, num_elements));
    run_tcp_ranks(world_size, [&](Communicator& communicator) { bits.expect_from(communicator); });
  }
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, TcpAllReduce, ::testing::Values(1, 2, 3, 4, 5, 8));

TEST(TcpAllReduceTypes, EveryDTypeOfEveryPlanIsExact) {
  constexpr std::size_t kNumElements = 1001;
  run_tcp_ranks(4, [](Communicator& communicator) {
    std::vector<double> expected(kNumElements);
    for (int rank = 0; rank < 4; ++rank) {
      for (std::size_t i = 0; i < kNumElements; ++i) expected[i] += small_value(rank, i);
    }
    for (const DType dtype : kDTypes) {
      for (const plan::AllReducePlan plan : kPlans) {
        const Tensor buffer = small_values(communicator.rank(), kNumElements, dtype);
        CollectiveOptions options;
        options.plan = plan;
        communicator.all_reduce(buffer, options);
        EXPECT_EQ(buffer.to_vector<double>(), expected) << what_case(plan, 4, kNumElements);
      }
    }
  });
}

// More than sockets hold, on every pair and in both directions at once.
TEST(TcpLarge, BuffersOfManyPiecesPassWithoutBlockingEachOther) {
  constexpr std::size_t kNumElements = 4'000'037;
  run_tcp_ranks(3, [](Communicator& communicator) {
    for (const plan::AllReducePlan plan : kPlans) {
      const Tensor buffer = Tensor::empty({kNumElements}, DType::int32);
      const std::span<std::int32_t> values = buffer.host<std::int32_t>();
      std::iota(values.begin(), values.end(), communicator.rank());
      CollectiveOptions options;
      options.plan = plan;
      communicator.all_reduce(buffer, options);
      std::size_t num_wrong = 0;
      for (std::size_t i = 0; i < kNumElements; ++i) {
        if (values[i] != static_cast<std::int32_t>(3 * i + 3)) ++num_wrong;
      }
      EXPECT_EQ(num_wrong, 0U) << what_case(plan, 3, kNumElements);
    }
  });
}

TEST(TcpCollectives, BroadcastGatherScatterAndBarrierGiveWhatTheyPromise) {
  for (const int world_size : {2, 3, 9}) {
    run_tcp_ranks(world_size, [&](Communicator& communicator) {
      const int rank = communicator.rank();
      for (const std::size_t length : {0UL, 1UL, 77UL, 70'000UL}) {
        const Tensor mine = small_values(rank, length, DType::float32);
        const int root = world_size - 1;
        const Tensor copy = mine.clone();
        communicator.broadcast(copy, root);
        EXPECT_TRUE(copy.to_vector<double>() ==
                    small_values(root, length, DType::float32).to_vector<double>());
        const auto n = static_cast<std::size_t>(world_size);
        const Tensor all = Tensor::zeros({n * length}, DType::float32, mine.device());
        communicator.all_gather(mine, all);
        for (int r = 0; r < world_size; ++r) {
          EXPECT_TRUE(
              all.slice(static_cast<std::size_t>(r) * length, {length}).to_vector<double>() ==
              small_values(r, length, DType::float32).to_vector<double>());
        }
        const Tensor part = Tensor::zeros({length}, DType::float32, mine.device());
        communicator.reduce_scatter(all, part);
        std::vector<double> expected =
            small_values(rank, length, DType::float32).to_vector<double>();
        for (double& value : expected) value *= world_size;
        EXPECT_TRUE(part.to_vector<double>() == expected);
        communicator.barrier();
      }
    });
  }
}

TEST(TcpPointToPoint, MessagesArriveInOrderAlsoWhenBothSendFirst) {
  constexpr std::size_t kLarge = 3'000'000;  // more than the sockets hold
  run_tcp_ranks(2, [](Communicator& communicator) {
    const int other = 1 - communicator.rank();
    for (int i = 0; i < 20; ++i) communicator.send(Tensor::full({5}, 100 * other + i), other);
    communicator.send(Tensor::full({kLarge}, 7), other);
    communicator.barrier();  // passes the letters by
    for (int i = 0; i < 20; ++i) {
      const Tensor found = Tensor::zeros({5});
      communicator.recv(found, other);
      EXPECT_THAT(found.host<float>(),
                  ::testing::Each(static_cast<float>(100 * communicator.rank() + i)));
    }
    const Tensor large = Tensor::zeros({kLarge});
    communicator.recv(large, other);
    EXPECT_EQ(std::ranges::count(large.host<float>(), 7.0F), static_cast<std::ptrdiff_t>(kLarge));
  });
}

TEST(TcpPointToPoint, WhatWasSentArrivesAfterTheSenderHasLeft) {
  constexpr std::size_t kLarge = 3'000'000;
  run_tcp_ranks(2, [](Communicator& communicator) {
    if (communicator.rank() == 0) {
      communicator.send(Tensor::full({kLarge}, 7), 1);
      return;
    }
    const Tensor large = Tensor::zeros({kLarge});
    communicator.recv(large, 0);
    EXPECT_EQ(std::ranges::count(large.host<float>(), 7.0F), static_cast<std::ptrdiff_t>(kLarge));
  });
}

TEST(TcpAsync, ManyCallsInFlightKeepTheirOrder) {
  run_tcp_ranks(3, [](Communicator& communicator) {
    std::vector<Tensor> buffers;
    std::vector<Work> works;
    for (int i = 0; i < 50; ++i) {
      buffers.push_back(Tensor::full({static_cast<std::size_t>(1 + i * 37)}, i));
      CollectiveOptions options;
      options.launch = Launch::async;
      options.plan = kPlans[static_cast<std::size_t>(i) % kPlans.size()];
      works.push_back(communicator.all_reduce(buffers.back(), options));
    }
    for (std::size_t i = 0; i < works.size(); ++i) {
      works[i].wait();
      EXPECT_THAT(buffers[i].host<float>(), ::testing::Each(3.0F * static_cast<float>(i)));
    }
  });
}

TEST(TcpStress, AThousandSmallAllReducesOfMoreRanksThanCoresAreAllRight) {
  constexpr int kWorldSize = 8;
  run_tcp_ranks(kWorldSize, [](Communicator& communicator) {
    const Tensor buffer = Tensor::empty({17}, DType::int64);
    for (int call = 0; call < 1000; ++call) {
      const std::span<std::int64_t> values = buffer.host<std::int64_t>();
      std::ranges::fill(values, communicator.rank() + call);
      CollectiveOptions options;
      options.plan = kPlans[static_cast<std::size_t>(call) % kPlans.size()];
      communicator.all_reduce(buffer, options);
      ASSERT_THAT(values, ::testing::Each(kWorldSize * call + 28)) << "call " << call;
    }
  });
}

TEST(TcpManyRanks, SixtyFourMeetReduceAndLeave) {
  run_tcp_ranks(64, [](Communicator& communicator) {
    const Tensor buffer = Tensor::full({1000}, communicator.rank());
    communicator.all_reduce(buffer);
    EXPECT_THAT(buffer.host<float>(), ::testing::Each(2016.0F));
  });
}

TEST(TcpAddresses, RanksMeetOverIPv6) {
  MemoryStore store;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      TcpTransportOptions options = tcp_options(rank, 2);
      options.address = "::1";
      PlanCommunicator communicator(std::make_unique<TcpTransport>(options, store));
      communicator.barrier();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace lockstep::comm
