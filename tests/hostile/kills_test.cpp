// A signal to a launcher, a supervisor, a rank or a process that one of these has started, at any
// time.
// Nothing may be left: no process, no file in TMPDIR, no segment.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <memory>
#include <random>
#include <thread>

#include "tests/hostile/rounds.h"
#include "tests/tools/marked_program.h"
#include "tests/tools/rank_variables.h"

namespace lockstep::testing {
namespace {

using Programs = std::vector<std::unique_ptr<MarkedProgram>>;

const std::string kTrain =
    fmt::format("{} train --parallel ddp --steps 1000000 --comm-timeout 2 ", LOCKSTEP_PROGRAM);

// Jobs that end by no work of theirs, started in different ways.
struct Kind {
  const char* name;
  Programs (*start)(const Variables& variables);
};

Programs one(const Arguments& arguments, const Variables& variables) {
  Programs programs;
  programs.push_back(std::make_unique<MarkedProgram>(arguments, variables));
  return programs;
}

const std::vector<Kind> kKinds = {
    {"ranks with daemons",
     [](const Variables& variables) {
       return one(run_script("--standalone --nproc-per-node 3 --shutdown-timeout 1",
                             "setsid sleep 1000 & (trap '' TERM HUP INT QUIT; setsid sleep 1000 &) "
                             "; exec sleep 1000"),
                  variables);
     }},
    {"lockstep run",
     [](const Variables& variables) {
       return one(words(fmt::format("{} run --standalone --nproc-per-node 2 --shutdown-timeout 1 "
                                    "-- {}",
                                    LOCKSTEP_PROGRAM, kTrain)),
                  variables);
     }},
    {"ranks that train starts",
     [](const Variables& variables) {
       return one(words(kTrain + "--ranks processes --devices 2"), variables);
     }},
    {"ranks by hand",
     [](const Variables& variables) {
       Programs programs;
       for (Variables rank : ranks_by_hand(2)) {
         rank.insert(variables.begin(), variables.end());
         programs.push_back(std::make_unique<MarkedProgram>(words(kTrain), rank));
       }
       return programs;
     }},
};

std::vector<pid_t> alive(const Programs& programs) {
  std::vector<pid_t> all;
  for (const auto& program : programs) {
    const std::vector<pid_t> some = program->alive();
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

// As a user ends a job whatever its state: once politely, then again; after so long that also a
// launcher that had to wait for a core takes it for a second signal.
void end(const Programs& programs) {
  for (int i = 0; i < 2; ++i) {
    for (const auto& program : programs) {
      if (program->num_alive() == 0) continue;
      program->send(SIGCONT);
      program->send(SIGTERM);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
}

std::size_t num_segments() {
  std::size_t count = 0;
  for (const auto& file : std::filesystem::directory_iterator("/dev/shm")) {
    if (file.path().filename().string().find("lockstep") != std::string::npos) ++count;
  }
  return count;
}

void expect_to_leave_nothing(const Kind& kind, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const TempFolder folder;
  const std::string path = folder.path().string();
  const std::size_t segments_before = num_segments();
  const Programs programs = kind.start({{"TMPDIR", path}});
  std::this_thread::sleep_for(std::chrono::milliseconds(random() % 400));
  const int signal = std::array{SIGKILL, SIGKILL, SIGTERM, SIGINT, SIGSTOP}[random() % 5];
  std::string story = fmt::format("seed {}, {}: signal {} to", seed, kind.name, signal);
  const std::vector<pid_t> processes = alive(programs);
  if (!processes.empty()) {
    const std::size_t victim = random() % processes.size();
    ::kill(processes[victim], signal);
    story += fmt::format(" {} of {}", victim, processes.size());
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(random() % 300));
  end(programs);
  // A rank by hand that was stopped is nobody's but the user's, who wakes it.
  if (programs.size() > 1) {
    for (const pid_t process : alive(programs)) ::kill(process, SIGCONT);
  }
  EXPECT_TRUE(wait_until([&] { return alive(programs).empty(); }))
      << story << ": " << alive(programs).size() << " processes are left";
  std::string left;
  const auto is_clean = [&] {
    left.clear();
    for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
      left += " " + file.path().filename().string();
    }
    return left.empty();
  };
  EXPECT_TRUE(wait_until(is_clean)) << story << ": files are left:" << left;
  EXPECT_LE(num_segments(), segments_before) << story;
}

TEST(Kills, LeaveNothing) {
  Rounds round(20);
  for (; round.go_on() && !HasFailure(); round.next()) {
    expect_to_leave_nothing(kKinds[round.seed() % kKinds.size()], round.seed());
  }
  report_row("jobs: SIGKILL, SIGTERM, SIGINT, SIGSTOP to any process at any time", round.seed(),
             "no process, file or segment left");
}

}  // namespace
}  // namespace lockstep::testing
