// Ranks as processes, for tests: forked from the test, watched by it, and gone when it ends.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace lockstep::testing {

// How a rank's process ended.
struct RankEnd {
  int exit_code = 0;   // 0: fn returned; 1: it threw; 3: an expectation inside it failed
  int signal = 0;      // that killed it
  std::string error;   // what() of what fn threw
  double seconds = 0;  // from start() until it ended
};

class ForkedRanks {
 public:
  // Forks world_size processes; each calls fn(rank) and exits. They die with this process.
  ForkedRanks(int world_size, const std::function<void(int rank)>& fn);
  // Kills those that are left.
  ~ForkedRanks();
  ForkedRanks(const ForkedRanks&) = delete;
  ForkedRanks& operator=(const ForkedRanks&) = delete;

  pid_t process(int rank) const { return processes_[static_cast<std::size_t>(rank)].id; }
  void signal(int rank, int number) const;

  // Waits for all but those in `except`. Who has not ended after this many seconds is killed, which
  // shows as signal 9.
  std::vector<RankEnd> join(double seconds, const std::vector<int>& except = {});

 private:
  struct Process {
    pid_t id = 0;
    int error_pipe = -1;
    bool has_ended = false;
    RankEnd end;
  };
  bool collect(Process& process) const;

  std::vector<Process> processes_;
  double started_ = 0;
};

// Forks, joins, and expects that every rank returned.
void run_forked_ranks(int world_size, const std::function<void(int rank)>& fn, double seconds = 60);

// A number that this process and those it forks later share: to tell each other how far they are.
class SharedCounter {
 public:
  SharedCounter();
  ~SharedCounter();
  SharedCounter(const SharedCounter&) = delete;
  SharedCounter& operator=(const SharedCounter&) = delete;

  void add(int difference);
  int value() const;
  // Gives up after a minute; the test then fails by what it expects next.
  void wait_until_at_least(int value) const;

 private:
  void* memory_;
};

}  // namespace lockstep::testing
