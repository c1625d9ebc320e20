// Which of several processes ended first, however late and in whatever order we ask.
#include "engine/launch/end_order.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

namespace lockstep::launch {
namespace {

// A child that waits, with a pipe as its stderr.
struct Child {
  pid_t process = 0;
  int err = -1;

  Child() {
    int ends[2];
    if (::pipe(ends) != 0) return;
    process = ::fork();
    if (process == 0) {
      for (;;) ::pause();
    }
    ::close(ends[1]);
    err = ends[0];
  }
  ~Child() {
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
    ::close(err);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Returns when it has ended; it remains to be reaped.
  void end() const {
    ::kill(process, SIGKILL);
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOWAIT);
  }
};

TEST(EndOrder, IsThatOfTheEventsAlsoWhenAllIsAskedAtOnce) {
  const std::array<Child, 3> children;
  EndOrder order;
  order.start_over(3);
  for (const std::size_t i : {0, 1, 2}) order.watch(i, children[i].process, children[i].err);
  children[2].end();
  children[0].end();
  order.update();
  EXPECT_EQ(order.number_of(2), 0u);
  EXPECT_EQ(order.number_of(0), 1u);
  EXPECT_EQ(order.number_of(1), EndOrder::kNotEnded);
}

TEST(EndOrder, APipeThatAnotherProcessHoldsOpenHidesNoEnd) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);  // whose writing end stays open
  const Child with_helper;
  const Child other;
  EndOrder order;
  order.start_over(2);
  order.watch(0, with_helper.process, ends[0]);
  order.watch(1, other.process, other.err);
  with_helper.end();
  other.end();
  order.update();
  EXPECT_LT(order.number_of(0), order.number_of(1));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(EndOrder, NumbersEachRankOnce) {
  EndOrder order;
  order.start_over(2);
  order.note_end(1);
  order.note_end(1);
  order.note_end(0);
  EXPECT_EQ(order.number_of(1), 0u);
  EXPECT_EQ(order.number_of(0), 1u);
  order.start_over(2);
  EXPECT_EQ(order.number_of(1), EndOrder::kNotEnded);
}

}  // namespace
}  // namespace lockstep::launch
