#include "engine/runtime/threads.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace lockstep::runtime {
namespace {

TEST(Worker, RunsItsTasksInOrder) {
  std::vector<int> order;
  std::vector<std::thread::id> ids;
  {
    Worker worker("test worker");
    for (int i = 0; i < 1000; ++i) {
      worker.post([&, i] {
        order.push_back(i);
        ids.push_back(std::this_thread::get_id());
      });
    }
    EXPECT_EQ(worker.num_posted(), 1000u);
  }  // the destructor finishes the tasks
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[std::size_t(i)], i);
  EXPECT_EQ(ids.front(), ids.back());
  EXPECT_NE(ids.front(), std::this_thread::get_id());
}

TEST(Worker, CountsTasksAfterLettingThemGo) {
  Worker worker("test worker");
  auto held = std::make_shared<int>(1);
  std::weak_ptr<int> watch = held;
  worker.post([held = std::move(held)] {});
  while (worker.num_finished().load() == 0) worker.num_finished().wait_while_equal(0);
  EXPECT_TRUE(watch.expired());
}

TEST(Worker, TasksMayComeFromAnyThread) {
  Worker worker("test worker");
  int runs = 0;  // only the worker touches it
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        worker.post([&] {
          ++runs;
          worker.post([&] { ++runs; });
        });
      }
    });
  }
  for (auto& thread : threads) thread.join();
  const WaitWord& finished = worker.num_finished();
  for (auto seen = finished.load(); seen != 1200; seen = finished.load()) {
    finished.wait_while_equal(seen);
  }
  EXPECT_EQ(runs, 1200);
}

}  // namespace
}  // namespace lockstep::runtime
