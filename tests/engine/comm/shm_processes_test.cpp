// Shared memory between real processes: they die and stop at every moment, outnumber the cores, and
// leave nothing behind.
#include "engine/comm/shm_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <set>
#include <thread>

#include "tests/engine/comm/comm_test_data.h"
#include "tests/engine/comm/process_ranks.h"
#include "tests/support/expect_error.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::expect_error;
using ::lockstep::testing::RankEnd;
using ::lockstep::testing::SharedCounter;
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

void all_reduce_for_ever(Communicator& communicator, SharedCounter& rounds) {
  const Tensor buffer = Tensor::zeros({50'000});
  for (int call = 0;; ++call) {
    CollectiveOptions options;
    options.plan = kPlans[static_cast<std::size_t>(call) % kPlans.size()];
    communicator.all_reduce(buffer, options);
    if (communicator.rank() == 0) rounds.add(1);
  }
}

TEST(ShmProcesses, ARankKilledAmongAllReducesIsNamedByAllOthersAtOnce) {
  for (const int victim : {0, 1, 3}) {
    SharedCounter rounds;
    ForkedGroup group(4, [&](Communicator& c) { all_reduce_for_ever(c, rounds); });
    rounds.wait_until_at_least(20);
    group.ranks().signal(victim, SIGKILL);
    const std::vector<RankEnd> ends = group.ranks().join(20);  // the time limit is 60 s
    for (int rank = 0; rank < 4; ++rank) {
      const RankEnd& end = ends[static_cast<std::size_t>(rank)];
      if (rank == victim) {
        EXPECT_EQ(end.signal, SIGKILL);
        continue;
      }
      expect_ended_with(end, fmt::format("rank {} (process {}) died while rank ", victim,
                                         group.ranks().process(victim)));
    }
  }
}

TEST(ShmProcesses, ARankKilledBeforeItCallsIsNamedByThoseWhoWaitForIt) {
  ForkedGroup group(3, [&](Communicator& communicator) {
    communicator.barrier();
    if (communicator.rank() == 2) raise(SIGKILL);
    communicator.all_reduce(Tensor::zeros({10}));
  });
  const std::vector<RankEnd> ends = group.ranks().join(20);
  for (const std::size_t rank : {0u, 1u}) {
    expect_ended_with(ends[rank], "died while rank");
    EXPECT_THAT(ends[rank].error, HasSubstr("rank 2 (process "));
    EXPECT_THAT(ends[rank].error, HasSubstr("waits for it in all_reduce #1 of 10 float32 (sum)"));
  }
}

// A store whose n-th request is the last thing that the process does. Looks for a key that is not
// there yet do not count.
class FatalStore : public Store {
 public:
  FatalStore(std::shared_ptr<Store> store, int requests_left)
      : store_(std::move(store)), requests_left_(requests_left) {}

  void set(std::string_view key, std::string_view value) override { next().set(key, value); }
  std::string set_if_absent(std::string_view key, std::string_view value) override {
    return next().set_if_absent(key, value);
  }
  std::optional<std::string> try_get(std::string_view key) override {
    auto value = store_->try_get(key);
    if (value) next();
    return value;
  }
  std::int64_t add(std::string_view key, std::int64_t difference) override {
    return next().add(key, difference);
  }
  void abort(const Error& why) override { next().abort(why); }

 private:
  Store& next() {
    if (requests_left_-- == 0) raise(SIGKILL);
    return *store_;
  }

  std::shared_ptr<Store> store_;
  int requests_left_;
};

TEST(ShmProcesses, ARankKilledAtAnyRequestOfTheMeetingEndsItForAll) {
  for (const int victim : {0, 1}) {
    // Before it waits for the others in the segment, a rank publishes its info and reads all three;
    // rank 0 then writes the segment's address.
    const int num_requests = victim == 0 ? 5 : 4;
    for (int request = 0; request < num_requests; ++request) {
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

// What it reads is old when it returns.
class LateStore : public FatalStore {
 public:
  explicit LateStore(std::shared_ptr<Store> store) : FatalStore(std::move(store), -1) {}

  std::optional<std::string> try_get(std::string_view key) override {
    const auto value = FatalStore::try_get(key);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return value;
  }
};

TEST(ShmProcesses, ARankThatDiedWithItsSegmentIsNamedByThoseWhoComeToOpenIt) {
  ForkedGroup group(
      3, [](Communicator& communicator) { communicator.barrier(); },
      [](ProcessGroupOptions& options) {
        if (options.rank == 0) {
          options.store = std::make_shared<FatalStore>(options.store, 5);
        } else {
          options.store = std::make_shared<LateStore>(options.store);
        }
      });
  const std::vector<RankEnd> ends = group.ranks().join(20);
  EXPECT_EQ(ends[0].signal, SIGKILL);
  for (const std::size_t rank : {1u, 2u}) expect_ended_with(ends[rank], "rank 0");
}

TEST(ShmProcesses, AStoppedRankIsNamedAtTheTimeLimitByAllOthers) {
  SharedCounter rounds;
  ForkedGroup group(
      3, [&](Communicator& communicator) { all_reduce_for_ever(communicator, rounds); },
      [](ProcessGroupOptions& options) { options.timeout_seconds = 1; });
  rounds.wait_until_at_least(20);
  group.ranks().signal(1, SIGSTOP);
  const std::vector<RankEnd> ends = group.ranks().join(20, {1});
  for (const std::size_t rank : {0u, 2u}) {
    expect_ended_with(ends[rank], "waited 1 s in all_reduce #");
    EXPECT_THAT(ends[rank].error, HasSubstr("rank 1"));
  }
}

// Rank 1 is stopped while it sleeps for rank 0, which comes then: what rank 1 says is out of date.
TEST(ShmProcesses, AStoppedRankIsNamedAlsoIfItWaitedForAnotherOneThatHasCome) {
  SharedCounter waiting;
  SharedCounter stopped;
  const auto body = [&](Communicator& communicator) {
    const Tensor buffer = Tensor::zeros({50'000});
    communicator.barrier();
    waiting.add(1);
    if (communicator.rank() == 0) stopped.wait_until_at_least(1);
    communicator.all_reduce(buffer);
    communicator.all_reduce(buffer);
  };
  ForkedGroup group(3, body, [](ProcessGroupOptions& options) {
    options.timeout_seconds = options.rank == 0 ? 10 : 2;  // so that rank 2 is the one that tells
  });
  waiting.wait_until_at_least(3);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  group.ranks().signal(1, SIGSTOP);
  stopped.add(1);
  const std::vector<RankEnd> ends = group.ranks().join(20, {1});
  for (const std::size_t rank : {0u, 2u}) {
    expect_ended_with(ends[rank], "rank 2 waited 2 s in all_reduce #");
    EXPECT_THAT(ends[rank].error, HasSubstr("for rank 1"));
  }
}

TEST(ShmProcesses, ARankThatLeavesFailsThoseThatNeedIt) {
  ForkedGroup group(3, [&](Communicator& communicator) {
    communicator.barrier();
    if (communicator.rank() != 1) communicator.barrier();
  });
  const std::vector<RankEnd> ends = group.ranks().join(20);
  EXPECT_EQ(ends[1].exit_code, 0);
  expect_ended_with(ends[0], "rank 1 left the group while rank");
  expect_ended_with(ends[2], "rank 1 left the group while rank");
}

TEST(ShmProcesses, AMessageOutlivesItsSender) {
  ForkedGroup group(2, [&](Communicator& communicator) {
    const Tensor message = Tensor::full({1'000'000}, 5);
    if (communicator.rank() == 0) {
      communicator.send(message, 1);
    } else {
      message.fill(0);
      communicator.recv(message, 0);
      EXPECT_EQ(message.to_vector<float>(), std::vector<float>(1'000'000, 5));
    }
  });
  for (const RankEnd& end : group.ranks().join(30)) EXPECT_EQ(end.exit_code, 0) << end.error;
}

TEST(ShmProcesses, SixtyFourRanksOnAnyNumberOfCoresAllReduce) {
  ForkedGroup group(64, [&](Communicator& communicator) {
    for (const plan::AllReducePlan plan :
         {plan::AllReducePlan::automatic, plan::AllReducePlan::ring, plan::AllReducePlan::tree}) {
      const Tensor buffer = Tensor::full({10'000}, communicator.rank());
      CollectiveOptions options;
      options.plan = plan;
      communicator.all_reduce(buffer, options);
      EXPECT_EQ(buffer.to_vector<float>(), std::vector<float>(10'000, 2016));
    }
  });
  for (const RankEnd& end : group.ranks().join(60)) EXPECT_EQ(end.exit_code, 0) << end.error;
}

// Without those of Open MPI, whose tests may run at the same time.
std::set<std::string> names_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("vader_segment")) names.insert(name);
  }
  return names;
}

TEST(ShmProcesses, NameNothingInAnyFileSystem) {
  const std::set<std::string> before = names_in("/dev/shm");
  ForkedGroup group(2, [&](Communicator& communicator) {
    communicator.all_reduce(Tensor::zeros({100'000}));
    EXPECT_EQ(names_in("/dev/shm"), before);
    if (communicator.rank() == 1) raise(SIGKILL);
  });
  group.ranks().join(20);
  EXPECT_EQ(names_in("/dev/shm"), before);
}

}  // namespace
}  // namespace lockstep::comm
