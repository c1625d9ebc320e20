// Tests of TCP alone, beside process_group_test.cpp: full sockets, many ranks, IPv6.
#include <gmock/gmock.h>

#include <numeric>

#include "tests/engine/comm/comm_test_data.h"
#include "tests/engine/comm/tcp_ranks.h"

namespace lockstep::comm {
namespace {

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
