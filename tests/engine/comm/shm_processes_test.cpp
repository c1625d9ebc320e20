// Shared memory between real processes that die while they meet. Who dies or stops while they
// train: tests/faults.
#include "engine/comm/shm_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include "tests/engine/comm/comm_test_data.h"
#include "tests/engine/comm/process_ranks.h"
#include "tests/support/expect_error.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::expect_error;
using ::lockstep::testing::RankEnd;
using ::testing::HasSubstr;

TEST(ShmSegment, AnAddressThatIsNoLongerTheSegmentIsRefused) {
  std::string address;
  {
    const auto segment = ShmSegment::create(10'000);
    address = segment.address();
    expect_error(ErrorCode::Comm, "is not the segment that was announced",
                 [&] { ShmSegment::open(address, 20'000); });
    expect_error(ErrorCode::Comm, "is not the address of a segment",
                 [] { ShmSegment::open("/dev/shm/x", 10'000); });
  }
  expect_error(ErrorCode::Comm, "cannot open the segment of rank 7 (process",
               [&] { ShmSegment::open(address, 10'000, "rank 7"); });
}

void expect_ended_with(const RankEnd& end, const std::string& words) {
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_EQ(end.signal, 0);
  EXPECT_THAT(end.error, HasSubstr(words));
}

// A store whose n-th request is the last thing that the process does. Looks for a key that is not
// there yet do not count.
class FatalStore final : public Store {
 public:
  FatalStore(std::shared_ptr<Store> store, int requests_left)
      : store_(std::move(store)), requests_left_(requests_left) {}

  Message ask(const Message& request) override {
    if (requests_left_ == 0) raise(SIGKILL);
    const Message answer = store_->ask(request);
    if (request[0] != "try_get" || !answer.empty()) --requests_left_;
    return answer;
  }

 private:
  std::shared_ptr<Store> store_;
  int requests_left_;
};

TEST(ShmProcesses, ARankKilledAtAnyRequestOfTheMeetingEndsItForAll) {
  for (const int victim : {0, 1}) {
    // A rank publishes its host, comes to a barrier (three requests), reads three hosts, writes or
    // reads the address of the segment, and comes to a second barrier.
    for (int request = 0; request < 11; ++request) {
      ForkedGroup group(
          3, [](Communicator& communicator) { communicator.barrier(); },
          [&](ProcessGroupOptions& options) {
            if (options.rank != victim) return;
            options.store = std::make_shared<FatalStore>(options.store, request);
          });
      const std::vector<RankEnd> ends = group.ranks().join(20);
      for (int rank = 0; rank < 3; ++rank) {
        const RankEnd& end = ends[static_cast<std::size_t>(rank)];
        if (rank == victim) {
          EXPECT_EQ(end.signal, SIGKILL);
        } else {
          expect_ended_with(end, fmt::format("rank {}", victim));
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::comm
