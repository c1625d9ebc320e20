#include "engine/comm/link.h"

#include <gmock/gmock.h>

#include <mutex>
#include <string_view>

#include "engine/comm/thread_group.h"
#include "tests/engine/comm/comm_test_data.h"
#include "tests/engine/comm/process_ranks.h"
#include "tests/support/expect_error.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::expect_error;
using ::testing::HasSubstr;

constexpr const char* kFast = "1us,100GB/s";  // so that tests of results take no time
constexpr const char* kEndless = "1000s,1GB/s";

// Groups over every transport ("thread", "shm", "tcp"), behind a link.
class Link : public ::testing::TestWithParam<const char*> {
 protected:
  static void run(int world_size, const RankFunction& fn, const char* link) {
    if (std::string_view(GetParam()) == "thread") {
      ThreadGroupOptions options;
      options.links = fixed_links(parse_link(link));
      return run_ranks(world_size, fn, options);
    }
    run_group_threads(world_size, fn, [&](ProcessGroupOptions& options) {
      options.transport = parse_transport_choice(GetParam());
      options.link = parse_link(link);
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Over, Link, ::testing::Values("thread", "shm", "tcp"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(Link, GivesTheBitsOfEveryPlan) {
  for (const int world_size : {2, 3}) {
    for (const std::size_t num_elements : {std::size_t{0}, std::size_t{5}, kLargeLength}) {
      const PlanBits bits(world_size, num_elements, kPlans, plan::AllReducePlan::one_shot);
      run(
          world_size, [&](Communicator& c) { bits.expect_from(c); }, kFast);
    }
  }
}

TEST_P(Link, CarriesEveryOtherOperation) {
  const auto work = [](Communicator& c) {
    constexpr std::array kTypes{DType::float32};
    check_moves(c, kTypes, Device{}, 1000);
    // Sent before the others' collective, received after it.
    if (c.rank() == 0) c.send(Tensor::full({70'000}, 7), 2);
    c.barrier();
    const Tensor letter = Tensor::empty({70'000});
    if (c.rank() == 2) {
      c.recv(letter, 0);
      EXPECT_EQ(letter.to_vector<double>(), std::vector<double>(70'000, 7));
    }
    const Tensor sum = Tensor::full({1000}, 1);
    c.all_reduce(sum, {.launch = Launch::async}).wait();
    EXPECT_EQ(sum.to_vector<double>(), std::vector<double>(1000, 3));
  };
  run(3, work, kFast);
}

// From the moment when the last of the ranks began until all had finished.
class Stopwatch {
 public:
  // Every rank calls it once.
  void time(Communicator& c, const std::function<void()>& work) {
    c.barrier();
    note(begin_);
    work();
    note(end_);
  }
  double seconds() const { return runtime::to_seconds(end_ - begin_); }

 private:
  void note(runtime::Time& latest) {
    const std::lock_guard lock(mutex_);
    latest = std::max(latest, runtime::now());
  }

  std::mutex mutex_;
  runtime::Time begin_{};
  runtime::Time end_{};
};

// The model's lower bound; a busy machine may take longer.
TEST_P(Link, TakesAtLeastTheModelledTime) {
  constexpr double kLatency = 0.005;
  constexpr double kBuffer = 0.010;  // 1 MB at 100 MB/s
  Stopwatch barrier, all_reduce, letter;
  const auto work = [&](Communicator& c) {
    const Tensor buffer = Tensor::zeros({250'000});
    barrier.time(c, [&] { c.barrier(); });
    all_reduce.time(c, [&] { c.all_reduce(buffer, {.plan = plan::AllReducePlan::ring}); });
    // The receiver answers, so that the time does not depend on who begins.
    letter.time(c, [&] {
      if (c.rank() == 0) c.send(buffer, 1);
      c.recv(buffer, 1 - c.rank());
      if (c.rank() == 1) c.send(buffer, 0);
    });
  };
  run(2, work, "5ms,100MB/s");
  EXPECT_GE(barrier.seconds(), kLatency);
  // Comparing the calls, then 2 steps of half a buffer.
  EXPECT_GE(all_reduce.seconds(), 3 * kLatency + kBuffer);
  EXPECT_GE(letter.seconds(), kLatency + kBuffer);
}

// A port is as busy as the messages that go through it: three buffers to rank 0, three from it.
TEST_P(Link, ARankThatEverybodyTalksToIsABottleneck) {
  Stopwatch all_reduce;
  const auto work = [&](Communicator& c) {
    const Tensor buffer = Tensor::zeros({100'000});  // 4 ms at 100 MB/s
    all_reduce.time(c,
                    [&] { c.all_reduce(buffer, {.plan = plan::AllReducePlan::reduce_broadcast}); });
    c.barrier();
  };
  run(4, work, "0s,100MB/s");
  EXPECT_GE(all_reduce.seconds(), 6 * 0.004);
}

TEST_P(Link, AMessageThatIsUnderWayForTooLongIsATimeoutThatSaysSo) {
  const auto work = [](Communicator& c) {
    c.set_timeout_seconds(0.1);
    expect_error(ErrorCode::Timeout, "still on its way over the simulated link (1000s,1GB/s)",
                 [&] { c.barrier(); });
  };
  run(2, work, kEndless);
}

// Ranks 0 and 1 are on one host, rank 2 on another.
TEST(LinkHosts, OnlyMessagesBetweenHostsGoOverTheLink) {
  const auto work = [](Communicator& c) {
    EXPECT_THAT(c.description(), HasSubstr("shm+tcp behind a simulated link (1000s,1GB/s)"));
    const Tensor buffer = Tensor::full({3}, c.rank());
    if (c.rank() == 0) {
      c.send(buffer, 1);
      c.send(buffer, 2);
      expect_error(ErrorCode::Timeout, "still on its way", [&] { c.recv(buffer, 2); });
    } else if (c.rank() == 1) {
      c.recv(buffer, 0);
      EXPECT_EQ(buffer.to_vector<double>(), std::vector<double>(3, 0));
      expect_error(ErrorCode::Timeout, "still on its way", [&] { c.recv(buffer, 2); });
    } else {
      c.send(buffer, 0);
      c.send(buffer, 1);
      c.set_timeout_seconds(0.2);
      expect_error(ErrorCode::Timeout, "still on its way", [&] { c.recv(buffer, 0); });
    }
  };
  run_group_threads(3, work, [](ProcessGroupOptions& options) {
    on_hosts({"a", "a", "b"})(options);
    options.link = parse_link(kEndless);
  });
}

TEST(LinkSpec, HasALatencyAndABandwidthInTheUnitsOfTheField) {
  EXPECT_DOUBLE_EQ(parse_link("50us,1GB/s").latency_seconds, 50e-6);
  EXPECT_DOUBLE_EQ(parse_link("50us,8Mbit/s").bytes_per_second, 1e6);
  for (const char* text : {"50us,1GB/s", "1.5ms,200MB/s", "2s,3KB/s", "800ns,7B/s", "0s,1GB/s"}) {
    EXPECT_EQ(to_string(parse_link(text)), text);
  }
  EXPECT_EQ(to_string(parse_link("0us,100Gbit/s")), "0s,12.5GB/s");
}

TEST(LinkSpec, AnythingElseIsAnErrorThatSaysWhatWasExpected) {
  const auto refuses = [](const std::string& text, const std::string& why) {
    expect_error(
        ErrorCode::Usage,
        "[link] expected LATENCY,BANDWIDTH such as 50us,1GB/s, found '" + text + "': " + why,
        [&] { parse_link(text); });
  };
  refuses("50us", "there is no comma");
  for (const char* latency : {"", "50", "-1us", "50min", "nanus", "1e7s"}) {
    refuses(std::string(latency) + ",1GB/s",
            "'" + std::string(latency) + "' is not a latency in ns");
  }
  for (const char* bandwidth : {"", "1", "0GB/s", "1Gb/s", "infGB/s", "99999999999999GB/s"}) {
    refuses("50us," + std::string(bandwidth),
            "'" + std::string(bandwidth) + "' is not a bandwidth of 1 B/s or more");
  }
}

}  // namespace
}  // namespace lockstep::comm
