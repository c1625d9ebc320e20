#include "engine/runtime/memory_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "engine/core/error.h"
#include "tests/support/expect_error.h"

namespace lockstep::runtime {
namespace {

using lockstep::testing::expect_error;

TEST(HostMemoryPool, BlocksAreAlignedWritableAndLargeEnough) {
  const auto pool = make_host_memory_pool("cpu:0");
  for (const std::size_t size : {0u, 1u, 63u, 64u, 65u, 513u, 100'000u, 5'000'000u}) {
    const auto block = pool->allocate(size);
    EXPECT_GE(block.num_bytes, size);
    EXPECT_LE(block.num_bytes, size + size / 8 + 64);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.data) % 64, 0u);
    std::memset(block.data, 1, block.num_bytes);
    pool->release(block);
  }
}

TEST(HostMemoryPool, CountsCurrentPeakAndCachedBytes) {
  const auto pool = make_host_memory_pool("cpu:0");
  const auto a = pool->allocate(1024);
  const auto b = pool->allocate(2048);
  EXPECT_EQ(pool->statistics().current_bytes, 3072u);
  pool->release(a);
  EXPECT_EQ(pool->statistics().current_bytes, 2048u);
  EXPECT_EQ(pool->statistics().peak_bytes, 3072u);
  EXPECT_EQ(pool->statistics().cached_bytes, 1024u);
  pool->reset_peak();
  EXPECT_EQ(pool->statistics().peak_bytes, 2048u);
  pool->release(b);
  pool->release_cached();
  EXPECT_EQ(pool->statistics().cached_bytes, 0u);
  EXPECT_EQ(pool->statistics().current_bytes, 0u);
}

TEST(HostMemoryPool, OutOfMemoryLeavesThePoolUsable) {
  const auto pool = make_host_memory_pool("cpu:7");
  const auto held = pool->allocate(1000);
  pool->release(pool->allocate(3000));
  for (const int power : {50, 60, 62}) {  // a petabyte and more
    try {
      pool->allocate(std::size_t{1} << power);
      ADD_FAILURE() << "2^" << power << " bytes were granted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::Device);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("cpu:7"));
      EXPECT_THAT(error.what(), ::testing::HasSubstr(std::to_string(std::size_t{1} << power)));
    }
  }
  EXPECT_THROW(pool->allocate(~std::size_t{0}), Error);
  EXPECT_EQ(pool->statistics().current_bytes, held.num_bytes);
  const auto after = pool->allocate(3000);
  std::memset(after.data, 1, 3000);
  pool->release(after);
  pool->release(held);
}

TEST(HostMemoryPool, BlocksBeyondItsLimitAreOutOfMemory) {
  const auto pool = make_host_memory_pool("cpu:3");
  const MemoryPool::Block first = pool->allocate(1024);
  pool->set_limit(4096);
  const MemoryPool::Block second = pool->allocate(3072);
  expect_error(
      ErrorCode::Device,
      "[allocate] out of memory on cpu:3: asked for 64 bytes, 0 are free, tensors hold 4096",
      [&] { pool->allocate(64); });
  pool->release(first);
  const MemoryPool::Block third = pool->allocate(1000);
  EXPECT_NE(third.data, nullptr);
  pool->release(second);
  pool->release(third);
}

TEST(HostMemoryPool, ThreadsMayShareIt) {
  const auto pool = make_host_memory_pool("cpu:0");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < 500; ++i) {
        const auto block = pool->allocate(64 * (1 + i % 7));
        std::memset(block.data, t, block.num_bytes);
        const auto* bytes = static_cast<const unsigned char*>(block.data);
        EXPECT_EQ(bytes[block.num_bytes - 1], t);
        pool->release(block);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(pool->statistics().current_bytes, 0u);
  EXPECT_EQ(pool->statistics().num_allocations, 2000u);
}

}  // namespace
}  // namespace lockstep::runtime
