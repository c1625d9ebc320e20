// Every sentence once, as a reader sees it.
#include "engine/comm/absent_rank.h"

#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

RankWait wait_in(Operation operation) {
  RankWait wait;
  wait.rank = 0;
  wait.peer = 1;
  wait.call.operation = operation;
  wait.call.sequence = 7;
  wait.call.num_elements = 100;
  wait.timeout_seconds = 2;
  return wait;
}

void expect_words(const Error& error, ErrorCode code, std::string_view words) {
  EXPECT_EQ(error.code(), code);
  EXPECT_EQ(error.what(), words);
}

TEST(AbsentRank, OneThatIsLateIsSaidToBeMissingOrToStandStill) {
  const RankWait wait = wait_in(Operation::all_reduce);
  expect_words(wait.late("rank 2 is missing"), ErrorCode::Timeout,
               "[all_reduce] rank 0 waited 2 s in all_reduce #7 of 100 float32 (sum): rank 2 is "
               "missing");
  expect_words(wait.late(""), ErrorCode::Timeout,
               "[all_reduce] rank 0 waited 2 s in all_reduce #7 of 100 float32 (sum) for rank 1, "
               "which has called it too but does not go on");
  expect_words(wait.late_on_another_host(), ErrorCode::Timeout,
               "[all_reduce] rank 0 waited 2 s in all_reduce #7 of 100 float32 (sum) for rank 1 on "
               "another host, which does not answer");
}

TEST(AbsentRank, OneThatIsLateWithAMessageIsNamedWhateverOthersDo) {
  const RankWait wait = wait_in(Operation::recv);
  expect_words(wait.late("rank 2 is missing"), ErrorCode::Timeout,
               "[recv] rank 0 waited 2 s in recv #7 of 100 float32 for a message that rank 1 has "
               "not sent");
  expect_words(wait.late_over("50us,1GB/s"), ErrorCode::Timeout,
               "[recv] rank 0 waited 2 s in recv #7 of 100 float32 for a message of rank 1 that is "
               "still on its way over the modelled link (50us,1GB/s)");
}

TEST(AbsentRank, OneThatIsGoneIsSaidToHaveLeftOrDied) {
  const RankWait wait = wait_in(Operation::barrier);
  expect_words(wait.left(), ErrorCode::Comm,
               "[barrier] rank 1 left the group while rank 0 waits for it in barrier #7");
  expect_words(wait.died(4711), ErrorCode::Comm,
               "[barrier] rank 1 (process 4711) died while rank 0 waits for it in barrier #7");
  expect_words(left_before(wait.call, 1, 7), ErrorCode::Comm,
               "[barrier] rank 1 left the group after 7 collectives, and barrier #7 needs it");
}

TEST(AbsentRank, OneWhoseConnectionEndsIsSaidToBeLost) {
  expect_words(lost_rank(2), ErrorCode::Comm,
               "[collective] rank 2 is lost: its connection closed: it was killed, or its host was "
               "cut off");
  expect_words(garbled_rank(2), ErrorCode::Comm,
               "[collective] rank 2 is lost: it sent bytes that are no frames");
  expect_words(ended_rank(2), ErrorCode::Comm,
               "[store] rank 2 ended without leaving: it was killed, or its host was cut off");
}

TEST(AbsentRank, OneThatSendsSomethingElseIsNamedWithBothSizes) {
  expect_words(wait_in(Operation::broadcast).found_bytes(8, 4), ErrorCode::Comm,
               "[broadcast] rank 0 expected 8 bytes from rank 1, found 4");
}

TEST(AbsentRank, ThoseThatAreMissingAreListedWithTheirLastCalls) {
  std::string list;
  add_to_list(list, missing_rank(1, wait_in(Operation::barrier).call));
  add_to_list(list, missing_rank(2, CallHeader{}));
  EXPECT_EQ(list,
            "rank 1 is missing (its last call: barrier #7), rank 2 is missing (its last call: "
            "nothing)");
  EXPECT_EQ(list_ranks(4, [](int rank) { return rank % 2 == 1; }), "rank 1, rank 3");
  EXPECT_EQ(list_ranks(4, [](int) { return false; }), "");
}

TEST(AbsentRank, WhoWaitsLessLongThanTheCallHearsThatItGoesOn) {
  expect_words(not_done_yet(wait_in(Operation::barrier).call, 0.5), ErrorCode::Timeout,
               "[barrier] barrier #7 was not done within 0.5 s; it goes on, and its own time limit "
               "names who is missing");
}

TEST(AbsentRank, WhoAbortsSaysWhy) {
  expect_words(aborted_by(3, "its data is gone"), ErrorCode::Comm,
               "[abort] rank 3 aborted the group: its data is gone");
  EXPECT_TRUE(is_abort(aborted_by(3, "its data is gone")));
  EXPECT_FALSE(is_abort(Error(ErrorCode::Comm, "train", "the loss is nan")));
  EXPECT_FALSE(is_abort(std::bad_alloc()));
}

}  // namespace
}  // namespace lockstep::comm
