#include "engine/core/thread_context.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

namespace lockstep {
namespace {

TEST(ThreadContext, AScopeInstallsAContext) {
  const ThreadContextScope outer({.rank = 1, .world_size = 4});
  {
    const ThreadContextScope inner({.rank = 3, .world_size = 4, .grad_enabled = false, .step = 9});
    EXPECT_EQ(thread_context().rank, 3);
    EXPECT_FALSE(thread_context().grad_enabled);
    EXPECT_EQ(thread_context().step, 9u);
    thread_context().rank = 2;  // changes inside a scope end with it
  }
  EXPECT_EQ(thread_context().rank, 1);
  EXPECT_TRUE(thread_context().grad_enabled);
  EXPECT_EQ(thread_context().step, 0u);
}

TEST(ThreadContext, OtherThreadsInheritNothing) {
  const ThreadContextScope scope({.rank = 2, .world_size = 4, .grad_enabled = false});
  std::jthread([] {
    EXPECT_EQ(thread_context().rank, 0);
    EXPECT_TRUE(thread_context().grad_enabled);
  });
}

}  // namespace
}  // namespace lockstep
