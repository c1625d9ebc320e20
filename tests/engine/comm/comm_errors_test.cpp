// Every sentence once, as a reader sees it; errors as bytes; the first of several failures.
#include "engine/comm/comm_errors.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/support/expect_error.h"

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

TEST(CommErrors, OneThatIsLateIsSaidToBeMissingOrToStandStill) {
  const RankWait wait = wait_in(Operation::all_reduce);
  expect_words(wait.late("rank 2 is missing"), ErrorCode::Timeout,
               "[all_reduce] rank 0 waited 2 s in all_reduce #7 of 100 float32 (sum): rank 2 is "
               "missing");
  expect_words(wait.late(""), ErrorCode::Timeout,
               "[all_reduce] rank 0 waited 2 s in all_reduce #7 of 100 float32 (sum) for rank 1, "
               "which has called it too but does not go on");
}

TEST(CommErrors, OneThatIsLateWithAMessageIsNamedWhateverOthersDo) {
  const RankWait wait = wait_in(Operation::recv);
  expect_words(wait.late("rank 2 is missing"), ErrorCode::Timeout,
               "[recv] rank 0 waited 2 s in recv #7 of 100 float32 for a message that rank 1 has "
               "not sent");
  expect_words(wait.late_over("50us,1GB/s"), ErrorCode::Timeout,
               "[recv] rank 0 waited 2 s in recv #7 of 100 float32 for a message of rank 1 that is "
               "still on its way over the modelled link (50us,1GB/s)");
}

TEST(CommErrors, OneThatIsGoneIsSaidToHaveLeftOrDied) {
  const RankWait wait = wait_in(Operation::barrier);
  expect_words(wait.left(), ErrorCode::Comm,
               "[barrier] rank 1 left the group while rank 0 waits for it in barrier #7");
  expect_words(wait.died(4711), ErrorCode::Comm,
               "[barrier] rank 1 (process 4711) died while rank 0 waits for it in barrier #7");
}

TEST(CommErrors, OneWhoseConnectionEndsIsSaidToBeLost) {
  expect_words(lost_rank(2), ErrorCode::Comm,
               "[collective] rank 2 is lost: its connection closed: it was killed, or its host was "
               "cut off");
  expect_words(garbled_rank(2), ErrorCode::Comm,
               "[collective] rank 2 is lost: it sent bytes that are no frames");
  expect_words(ended_rank(2), ErrorCode::Comm,
               "[store] rank 2 ended without leaving: it was killed, or its host was cut off");
}

TEST(CommErrors, OneThatSendsSomethingElseIsNamedWithBothSizes) {
  expect_words(wait_in(Operation::broadcast).found_bytes(8, 4), ErrorCode::Comm,
               "[broadcast] rank 0 expected 8 bytes from rank 1, found 4");
}

TEST(CommErrors, ThoseThatAreMissingAreListedWithTheirLastCalls) {
  std::string list;
  add_to_list(list, missing_rank(1, wait_in(Operation::barrier).call));
  add_to_list(list, missing_rank(2, CallHeader{}));
  EXPECT_EQ(list,
            "rank 1 is missing (its last call: barrier #7), rank 2 is missing (its last call: "
            "nothing)");
}

TEST(CommErrors, WhoAbortsSaysWhy) {
  expect_words(aborted_by(3, "its data is gone"), ErrorCode::Comm,
               "[abort] rank 3 aborted the group: its data is gone");
  EXPECT_TRUE(is_abort(aborted_by(3, "its data is gone")));
  EXPECT_FALSE(is_abort(Error(ErrorCode::Comm, "train", "the loss is nan")));
  EXPECT_FALSE(is_abort(std::bad_alloc()));
}

void expect_same(const Error& found, const Error& expected) {
  EXPECT_EQ(found.code(), expected.code());
  EXPECT_EQ(found.operation(), expected.operation());
  EXPECT_EQ(found.message(), expected.message());
}

void expect_unreadable(std::string_view bytes) {
  const Error error = decode_error(bytes);
  EXPECT_EQ(error.code(), ErrorCode::Comm);
  EXPECT_EQ(error.message(), "a rank failed, and its message is unreadable");
}

TEST(ErrorBytes, AnErrorArrivesAsItWasSent) {
  for (const Error& error :
       {Error(ErrorCode::Shape, "all_reduce", "rank 2 is missing (its last call: nothing)"),
        Error(ErrorCode::Numeric, "a [b] c", "d] [e"), Error(ErrorCode::Timeout, "", ""),
        Error(ErrorCode::Io, std::string(300, 'o'), std::string(70'000, 'm'))}) {
    expect_same(decode_error(encode(error, 1 << 20)), error);
  }
}

TEST(ErrorBytes, WhatDoesNotFitLosesTheEndOfItsMessage) {
  const std::string bytes = encode(Error(ErrorCode::Usage, "train", "no such file"), 16);
  EXPECT_EQ(bytes.size(), 16U);
  expect_same(decode_error(bytes), Error(ErrorCode::Usage, "train", "no such f"));
}

TEST(ErrorBytes, BytesThatAreNoErrorSaySo) {
  const std::string good = encode(Error(ErrorCode::Comm, "join", ""), 100);
  for (std::size_t size = 0; size < good.size(); ++size) {
    expect_unreadable(std::string_view(good).substr(0, size));
  }
  for (const char code : {'\x0a', '\x7f', '\xff'}) expect_unreadable(code + good.substr(1));
}

TEST(FirstFailure, TheFirstErrorStays) {
  FirstFailure failure;
  EXPECT_TRUE(failure.set(Error(ErrorCode::Timeout, "all_reduce", "rank 1 is missing")));
  EXPECT_FALSE(failure.set(Error(ErrorCode::Comm, "abort", "rank 2 is gone too")));
  EXPECT_TRUE(failure.is_set());
  EXPECT_STREQ(failure.error().what(), "[all_reduce] rank 1 is missing");
  testing::expect_error(ErrorCode::Timeout, "[all_reduce] rank 1 is missing",
                        [&] { failure.throw_if_set(); });
}

TEST(FirstFailure, OfManyThatFailAtOnceOneIsTheFirst) {
  FirstFailure failure;
  std::atomic<int> first{-1};
  std::atomic<int> num_first{0};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 8; ++rank) {
    ranks.emplace_back([&, rank] {
      if (!failure.set(Error(ErrorCode::Comm, "test", std::to_string(rank)))) return;
      first = rank;
      ++num_first;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(num_first.load(), 1);
  EXPECT_EQ(failure.error().message(), std::to_string(first.load()));
}

}  // namespace
}  // namespace lockstep::comm
