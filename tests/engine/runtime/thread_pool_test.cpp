#include "engine/runtime/threads.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <latch>
#include <stdexcept>

#include "engine/core/error.h"

namespace lockstep::runtime {
namespace {

class ThreadPoolOf : public ::testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolOf, ::testing::Values(1, 2, 4, 9));

TEST_P(ThreadPoolOf, EveryTaskRunsExactlyOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.num_threads(), GetParam());
  for (const std::size_t num_tasks : {0u, 1u, 2u, 3u, 1000u}) {
    std::vector<int> runs(num_tasks, 0);
    pool.parallel_for(num_tasks, [&](std::size_t i) { ++runs[i]; });
    EXPECT_EQ(runs, std::vector<int>(num_tasks, 1));
  }
}

TEST_P(ThreadPoolOf, AnExceptionOfATaskReachesTheCaller) {
  ThreadPool pool(GetParam());
  for (int repeat = 0; repeat < 50; ++repeat) {
    std::atomic<int> runs{0};
    const auto job = [&] {
      pool.parallel_for(20, [&](std::size_t i) {
        ++runs;
        if (i == 13) throw std::runtime_error("task 13");
      });
    };
    EXPECT_THROW(job(), std::runtime_error);
    EXPECT_GE(runs.load(), 14);
  }
  int after = 0;
  pool.parallel_for(1, [&](std::size_t) { ++after; });
  EXPECT_EQ(after, 1);
}

TEST_P(ThreadPoolOf, AJobInsideATaskRunsThere) {
  ThreadPool pool(GetParam());
  std::vector<int> runs(6 * 5, 0);
  pool.parallel_for(6, [&](std::size_t outer) {
    const auto self = std::this_thread::get_id();
    pool.parallel_for(5, [&](std::size_t inner) {
      ++runs[outer * 5 + inner];
      EXPECT_EQ(std::this_thread::get_id(), self);
    });
  });
  EXPECT_EQ(runs, std::vector<int>(30, 1));
}

TEST_P(ThreadPoolOf, SeveralCallersMayUseIt) {
  ThreadPool pool(GetParam());
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&] {
      std::vector<std::size_t> runs(11, 0);
      for (std::size_t job = 0; job < 500; ++job) {
        pool.parallel_for(runs.size(), [&](std::size_t i) { ++runs[i]; });
      }
      EXPECT_EQ(runs, std::vector<std::size_t>(11, 500));
    });
  }
  for (auto& caller : callers) caller.join();
}

TEST(ThreadPool, WorkersRunOnTheCoresOfWhoeverCalls) {
  constexpr std::size_t kThreads = 3;
  ThreadPool pool(kThreads);
  const std::vector<int> allowed = allowed_cores();
  for (const int core : {allowed.front(), allowed.back()}) {
    std::thread([&] {
      bind_to({core});
      std::latch all_at_work(kThreads);
      std::vector<int> cores(kThreads);
      pool.parallel_for(kThreads, [&](std::size_t i) {
        all_at_work.arrive_and_wait();
        cores[i] = ::sched_getcpu();
      });
      EXPECT_EQ(cores, std::vector(kThreads, core));
    }).join();
  }
}

}  // namespace
}  // namespace lockstep::runtime
