// Who waits for whom in a group that shares a segment: what the words of a timeout are made from.
#include "engine/comm/shm_members.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>

namespace lockstep::comm {
namespace {

using Waited = ShmMembers::Waited;

class ShmMembersOfThree : public ::testing::Test {
 protected:
  ShmMembers member(int m) {
    return {ShmSegment::open(segment_.address(), segment_.num_bytes()), m, {10, 11, 12}};
  }

  const ShmSegment segment_ = ShmSegment::create(ShmMembers::segment_bytes(3));
};

constexpr auto kNever = [] { return false; };

runtime::Deadline at_once() {
  return runtime::deadline_after(0.001);
}

TEST_F(ShmMembersOfThree, WhoWaitedInVainGoesOnSayingForWhom) {
  const std::array<ShmMembers, 3> members{member(0), member(1), member(2)};
  ASSERT_EQ(members[1].wait(2, at_once(), kNever), Waited::timed_out);
  // Rank 10 asks a moment later on whom rank 11 waits.
  EXPECT_EQ(members[0].last_waited_for(1).rank, 12);
}

TEST_F(ShmMembersOfThree, WhoGotWhatItWaitedForWaitsForNobody) {
  const std::array<ShmMembers, 3> members{member(0), member(1), member(2)};
  ASSERT_EQ(members[1].wait(2, at_once(), kNever), Waited::timed_out);
  int num_looks = 0;
  ASSERT_EQ(members[1].wait(2, {}, [&] { return ++num_looks > 5; }), Waited::done);
  EXPECT_EQ(members[0].last_waited_for(1).rank, 11);
}

}  // namespace
}  // namespace lockstep::comm
