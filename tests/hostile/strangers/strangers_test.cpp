// Jobs that start and run while strangers open connections to their port by the thousand.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <chrono>

#include "tests/hostile/rounds.h"
#include "tests/hostile/strangers/crowd.h"
#include "tests/tools/marked_program.h"
#include "tests/tools/rank_variables.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kConnectionsPerSecond = 12'000;
constexpr std::size_t kConnectionsPerRound = 3'400;

// Starts a job of three ranks at this port; says whether it did what it should.
void expect_to_meet(const std::string& port) {
  MarkedProgram job(words(std::string(LOCKSTEP_PROGRAM) + " run --nproc-per-node 3 --master-port " +
                          port + " -- " + MEET_RANKS + " 60"));
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* rank : {"0", "1", "2"}) {
    EXPECT_THAT(outcome.out,
                HasSubstr(fmt::format("rank {} of 3, local rank {} of 3, sum 3", rank, rank)));
  }
}

TEST(Strangers, KeepNoJobFromStarting) {
  const std::string port = free_port();
  const auto start = std::chrono::steady_clock::now();
  const Crowd crowd(static_cast<std::uint16_t>(std::stoi(port)), kConnectionsPerSecond, 1);
  std::size_t num_jobs = 0;
  for (Rounds round(2); round.go_on() && !HasFailure(); round.next()) {
    const std::size_t enough = crowd.num_connections() + kConnectionsPerRound;
    do {
      expect_to_meet(port);
      ++num_jobs;
    } while (crowd.num_connections() < enough);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  report_row("joining: connections of strangers", crowd.num_connections(),
             fmt::format("{:.0f} in a second; all {} jobs of 3 ranks that were started met",
                         static_cast<double>(crowd.num_connections()) / took.count(), num_jobs));
}

// A job that trains has the weights that it has undisturbed.
TEST(Strangers, DisturbNoJobThatRuns) {
  const auto train = [](const std::string& port) {
    const std::string work = "train --parallel ddp --bitwise --batch 61 --steps 26 --transport tcp";
    MarkedProgram job(words(std::string(LOCKSTEP_PROGRAM) +
                            " run --nproc-per-node 2 --master-port " + port + " -- " +
                            LOCKSTEP_PROGRAM + " " + work));
    const Outcome outcome = job.wait();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return weights_digest(outcome);
  };
  const std::string undisturbed = train(free_port());
  const std::string port = free_port();
  const Crowd crowd(static_cast<std::uint16_t>(std::stoi(port)), kConnectionsPerSecond, 2);
  EXPECT_EQ(train(port), undisturbed);
  EXPECT_GT(crowd.num_connections(), 100U);
  report_row("running job: connections of strangers", crowd.num_connections(),
             "the weights of an undisturbed job, bit for bit");
}

}  // namespace
}  // namespace lockstep::testing
