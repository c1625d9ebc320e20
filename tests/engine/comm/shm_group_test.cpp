// Who waits for whom in a group that shares a segment: what the words of a timeout are made from.
#include "engine/comm/transport/arena/group.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>

#include "engine/comm/transport/shm/shared_segment.h"

namespace lockstep::comm::shm {
namespace {

using arena::Group;
using arena::Waited;

class ShmGroup : public ::testing::Test {
 protected:
  Group member(int m) {
    auto segment = SharedSegment::open(segment_.address(), segment_.num_bytes());
    return {std::make_shared<SharedSegment>(std::move(segment)),
            arena::Messages::copied,
            m,
            {10, 11, 12}};
  }

  const SharedSegment segment_ =
      SharedSegment::create(arena::Layout(3, arena::Messages::copied).num_bytes());
};

constexpr auto kNever = [] { return false; };

runtime::Deadline at_once() {
  return runtime::deadline_after(0.001);
}

TEST_F(ShmGroup, WhoWaitedInVainGoesOnSayingForWhom) {
  const std::array<Group, 3> members{member(0), member(1), member(2)};
  ASSERT_EQ(members[1].wait(2, at_once(), kNever), Waited::timed_out);
  // Rank 10 asks a moment later on whom rank 11 waits.
  EXPECT_EQ(members[0].last_waited_for(1).rank, 12);
}

TEST_F(ShmGroup, WhoGotWhatItWaitedForWaitsForNobody) {
  const std::array<Group, 3> members{member(0), member(1), member(2)};
  ASSERT_EQ(members[1].wait(2, at_once(), kNever), Waited::timed_out);
  int num_looks = 0;
  ASSERT_EQ(members[1].wait(2, {}, [&] { return ++num_looks > 5; }), Waited::done);
  EXPECT_EQ(members[0].last_waited_for(1).rank, 11);
}

}  // namespace
}  // namespace lockstep::comm::shm
