#include "tests/support/forked_ranks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <new>

namespace lockstep::testing {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

[[noreturn]] void run_child(int rank, const std::function<void(int rank)>& fn, int error_pipe) {
  int exit_code = 0;
  std::string error;
  try {
    fn(rank);
    if (::testing::Test::HasFailure()) exit_code = 3;
  } catch (const std::exception& caught) {
    exit_code = 1;
    error = caught.what();
  }
  std::fflush(nullptr);
  if (write(error_pipe, error.data(), error.size()) < 0) exit_code = 4;
  _exit(exit_code);
}

std::atomic<int>& counter_at(void* memory) {
  return *static_cast<std::atomic<int>*>(memory);
}

}  // namespace

ForkedRanks::ForkedRanks(int world_size, const std::function<void(int rank)>& fn)
    : started_(now()) {
  std::fflush(nullptr);
  const pid_t parent = getpid();
  for (int rank = 0; rank < world_size; ++rank) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::bad_alloc();
    const pid_t id = fork();
    if (id < 0) throw std::bad_alloc();
    if (id == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(5);
      run_child(rank, fn, ends[1]);
    }
    close(ends[1]);
    Process process;
    process.id = id;
    process.error_pipe = ends[0];
    processes_.push_back(process);
  }
}

ForkedRanks::~ForkedRanks() {
  for (Process& process : processes_) {
    if (process.has_ended) continue;
    kill(process.id, SIGKILL);
    waitpid(process.id, nullptr, 0);
    close(process.error_pipe);
  }
}

void ForkedRanks::signal(int rank, int number) const {
  kill(process(rank), number);
}

bool ForkedRanks::collect(Process& process) const {
  int status = 0;
  if (waitpid(process.id, &status, WNOHANG) != process.id) return false;
  process.has_ended = true;
  process.end.seconds = now() - started_;
  if (WIFEXITED(status)) process.end.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) process.end.signal = WTERMSIG(status);
  char text[4096];
  const ssize_t length = read(process.error_pipe, text, sizeof text);
  if (length > 0) process.end.error.assign(text, static_cast<std::size_t>(length));
  close(process.error_pipe);
  return true;
}

std::vector<RankEnd> ForkedRanks::join(double seconds, const std::vector<int>& except) {
  const double deadline = now() + seconds;
  for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
    Process& process = processes_[rank];
    const bool is_excepted = std::ranges::find(except, static_cast<int>(rank)) != except.end();
    while (!process.has_ended && !is_excepted && !collect(process)) {
      if (now() > deadline) kill(process.id, SIGKILL);
      // The pipe closes when the process ends.
      pollfd end{process.error_pipe, 0, 0};
      poll(&end, 1, 10);
    }
  }
  std::vector<RankEnd> ends;
  for (const Process& process : processes_) ends.push_back(process.end);
  return ends;
}

void run_forked_ranks(int world_size, const std::function<void(int rank)>& fn, double seconds) {
  ForkedRanks ranks(world_size, fn);
  const std::vector<RankEnd> ends = ranks.join(seconds);
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    EXPECT_EQ(ends[rank].exit_code, 0) << "rank " << rank << ": " << ends[rank].error;
    EXPECT_EQ(ends[rank].signal, 0) << "rank " << rank << ": " << ends[rank].error;
  }
}

SharedCounter::SharedCounter()
    : memory_(mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
  if (memory_ == MAP_FAILED) throw std::bad_alloc();
  new (memory_) std::atomic<int>(0);
}

SharedCounter::~SharedCounter() {
  munmap(memory_, sizeof(std::atomic<int>));
}

void SharedCounter::add(int difference) {
  counter_at(memory_) += difference;
}
int SharedCounter::value() const {
  return counter_at(memory_).load();
}

void SharedCounter::wait_until_at_least(int value) const {
  const double deadline = now() + 60;
  while (this->value() < value && now() < deadline) poll(nullptr, 0, 1);
}

}  // namespace lockstep::testing
