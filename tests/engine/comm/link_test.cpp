#include "engine/comm/link.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/engine/comm/comm_test_data.h"
#include "tests/engine/comm/process_ranks.h"
#include "tests/support/expect_error.h"
#include "tests/support/run_ranks.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::errors_of_ranks;
using ::lockstep::testing::expect_error;
using ::testing::HasSubstr;

constexpr const char* kFast = "1us,100GB/s";  // so that tests of results take no time
constexpr const char* kEndless = "1000s,1GB/s";

ThreadGroupOptions with_link(const char* link, double timeout_seconds = 60) {
  ThreadGroupOptions options;
  options.timeout_seconds = timeout_seconds;
  options.link = parse_link(link);
  return options;
}

// Groups of every kind, each behind a link.
struct Kind {
  const char* name;
  std::function<void(int world_size, const RankFunction&, const char* link)> run;
};

Kind processes_over(const char* name, TransportChoice transport) {
  return {name, [transport](int world_size, const RankFunction& fn, const char* link) {
            run_group_threads(world_size, fn, [&](ProcessGroupOptions& options) {
              options.transport = transport;
              options.link = parse_link(link);
            });
          }};
}

class Link : public ::testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(Over, Link,
                         ::testing::Values(Kind{"thread",
                                                [](int world_size, const RankFunction& fn,
                                                   const char* link) {
                                                  run_ranks(world_size, fn, with_link(link));
                                                }},
                                           processes_over("shm", TransportChoice::shm),
                                           processes_over("tcp", TransportChoice::tcp)),
                         [](const auto& test) { return test.param.name; });

TEST_P(Link, GivesTheBitsOfEveryPlan) {
  for (const int world_size : {2, 3}) {
    for (const std::size_t num_elements : {std::size_t{0}, std::size_t{5}, kLargeLength}) {
      const PlanBits bits(world_size, num_elements, kPlans, plan::AllReducePlan::one_shot);
      GetParam().run(
          world_size, [&](Communicator& c) { bits.expect_from(c); }, kFast);
    }
  }
}

TEST_P(Link, CarriesEveryOtherOperation) {
  const auto work = [](Communicator& c) {
    const double rank = c.rank();
    const Tensor root = Tensor::full({1000}, rank);
    c.broadcast(root, 1);
    EXPECT_EQ(root.to_vector<double>(), std::vector<double>(1000, 1));
    const Tensor gathered = Tensor::empty({3});
    c.all_gather(Tensor::full({1}, rank), gathered);
    EXPECT_EQ(gathered.to_vector<double>(), (std::vector<double>{0, 1, 2}));
    const Tensor part = Tensor::empty({2});
    c.reduce_scatter(Tensor::full({6}, rank), part);
    EXPECT_EQ(part.to_vector<double>(), (std::vector<double>{3, 3}));
    // Sent before the others' collective, received after it.
    if (c.rank() == 0) c.send(Tensor::full({70'000}, 7), 2);
    c.barrier();
    const Tensor letter = Tensor::empty({70'000});
    if (c.rank() == 2) {
      c.recv(letter, 0);
      EXPECT_EQ(letter.to_vector<double>(), std::vector<double>(70'000, 7));
    }
    c.all_reduce(root, {.launch = Launch::async}).wait();
    EXPECT_EQ(root.to_vector<double>(), std::vector<double>(1000, 3));
  };
  GetParam().run(3, work, kFast);
}

using Clock = std::chrono::steady_clock;

// From the moment when the last of the ranks began until all had finished.
class Stopwatch {
 public:
  explicit Stopwatch(int world_size) : begin_(static_cast<std::size_t>(world_size)), end_(begin_) {}

  // Every rank calls it once.
  void time(Communicator& c, const std::function<void()>& work) {
    c.barrier();
    const auto rank = static_cast<std::size_t>(c.rank());
    begin_[rank] = Clock::now();
    work();
    end_[rank] = Clock::now();
  }
  double seconds() const {
    return std::chrono::duration<double>(*std::ranges::max_element(end_) -
                                         *std::ranges::max_element(begin_))
        .count();
  }

 private:
  std::vector<Clock::time_point> begin_;
  std::vector<Clock::time_point> end_;
};

// The model's lower bound; a busy machine may take longer.
TEST_P(Link, TakesAtLeastTheModelledTime) {
  constexpr double kLatency = 0.005;
  constexpr double kBuffer = 0.010;  // 1 MB at 100 MB/s
  Stopwatch barrier(2), all_reduce(2), letter(2);
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
  GetParam().run(2, work, "5ms,100MB/s");
  EXPECT_GE(barrier.seconds(), kLatency);
  // Comparing the calls, then 2 steps of half a buffer.
  EXPECT_GE(all_reduce.seconds(), 3 * kLatency + kBuffer);
  EXPECT_GE(letter.seconds(), kLatency + kBuffer);
}

// A port is as busy as the messages that go through it: three buffers to rank 0, three from it.
TEST_P(Link, ARankThatEverybodyTalksToIsABottleneck) {
  Stopwatch all_reduce(4);
  const auto work = [&](Communicator& c) {
    const Tensor buffer = Tensor::zeros({100'000});  // 4 ms at 100 MB/s
    all_reduce.time(c,
                    [&] { c.all_reduce(buffer, {.plan = plan::AllReducePlan::reduce_broadcast}); });
    c.barrier();
  };
  GetParam().run(4, work, "0s,100MB/s");
  EXPECT_GE(all_reduce.seconds(), 6 * 0.004);
}

TEST_P(Link, AMessageThatIsUnderWayForTooLongIsATimeoutThatSaysSo) {
  const auto work = [](Communicator& c) {
    c.set_timeout_seconds(0.1);
    expect_error(ErrorCode::Timeout, "still on its way over the modelled link (1000s,1GB/s)",
                 [&] { c.barrier(); });
  };
  GetParam().run(2, work, kEndless);
}

// Ranks 0 and 1 are on one host, rank 2 on another.
TEST(LinkHosts, OnlyMessagesBetweenHostsGoOverTheLink) {
  const auto work = [](Communicator& c) {
    EXPECT_THAT(c.description(), HasSubstr("shm+tcp behind a modelled link (1000s,1GB/s)"));
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
  const LinkSpec link = parse_link("50us,1GB/s");
  EXPECT_DOUBLE_EQ(link.latency_seconds, 50e-6);
  EXPECT_DOUBLE_EQ(link.bytes_per_second, 1e9);
  EXPECT_DOUBLE_EQ(parse_link("1.5ms,200MB/s").latency_seconds, 1.5e-3);
  EXPECT_DOUBLE_EQ(parse_link("2s,3KB/s").latency_seconds, 2);
  EXPECT_DOUBLE_EQ(parse_link("2s,3KB/s").bytes_per_second, 3e3);
  EXPECT_DOUBLE_EQ(parse_link("800ns,7B/s").latency_seconds, 8e-7);
  EXPECT_DOUBLE_EQ(parse_link("0us,7B/s").bytes_per_second, 7);
  EXPECT_DOUBLE_EQ(parse_link("1us,100Gbit/s").bytes_per_second, 12.5e9);
  EXPECT_DOUBLE_EQ(parse_link("1us,8Mbit/s").bytes_per_second, 1e6);
  EXPECT_DOUBLE_EQ(parse_link("1us,8Kbit/s").bytes_per_second, 1e3);
}

TEST(LinkSpec, IsShownAsItCouldHaveBeenWritten) {
  for (const char* text : {"50us,1GB/s", "1.5ms,200MB/s", "2s,3KB/s", "800ns,7B/s", "0s,1GB/s"}) {
    EXPECT_EQ(to_string(parse_link(text)), text);
  }
  EXPECT_EQ(to_string(parse_link("0us,100Gbit/s")), "0s,12.5GB/s");
}

TEST(LinkSpec, AnythingElseIsAnErrorThatSaysWhatWasExpected) {
  const auto refuses = [](const std::string& text, const std::string& why) {
    expect_error(
        ErrorCode::Usage,
        "[--link] expected LATENCY,BANDWIDTH such as 50us,1GB/s, found '" + text + "': " + why,
        [&] { parse_link(text); });
  };
  refuses("", "there is no comma");
  refuses("50us", "there is no comma");
  for (const char* latency : {"", "50", "us", "-1us", "50 us", "50min", "nanus", "infs", "1e7s"}) {
    refuses(std::string(latency) + ",1GB/s",
            "'" + std::string(latency) + "' is not a latency in ns");
  }
  for (const char* bandwidth : {"", "1", "GB/s", "-1GB/s", "0GB/s", "0.5B/s", "1Gb/s", "1GB",
                                "1GB/s,", "infGB/s", "99999999999999GB/s"}) {
    refuses("50us," + std::string(bandwidth),
            "'" + std::string(bandwidth) + "' is not a bandwidth of 1 B/s or more");
  }
}

}  // namespace
}  // namespace lockstep::comm
