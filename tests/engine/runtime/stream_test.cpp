#include "engine/runtime/stream.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "engine/runtime/logical_device.h"
#include "engine/runtime/storage.h"

namespace lockstep::runtime {
namespace {

// Holds up a stream until it is opened.
class Door {
 public:
  void wait() const {
    while (word_.load() == 0) word_.wait_while_equal(0);
  }
  void open() { word_.store(1); }

 private:
  WaitWord word_;
};

LogicalDevice& device(int index = 20) {
  return logical_device({DeviceType::cpu, index});
}

TEST(ComputeStream, RunsWorkInTheCallingThreadAtOnce) {
  std::thread::id ran_on;
  device().compute_stream().submit([&] { ran_on = std::this_thread::get_id(); });
  EXPECT_EQ(ran_on, std::this_thread::get_id());
  EXPECT_TRUE(device().compute_stream().record()->has_passed());
  EXPECT_EQ(&device().compute_stream().device(), &device());
}

TEST(CommStream, RunsWorkInOrderBesideTheCaller) {
  Stream& stream = device().comm_stream();
  std::vector<int> order;
  std::thread::id ran_on;
  Door door;
  stream.submit([&] { door.wait(); });  // the caller goes on although the stream is held up
  for (int i = 0; i < 100; ++i) stream.submit([&, i] { order.push_back(i); });
  stream.submit([&] { ran_on = std::this_thread::get_id(); });
  door.open();
  stream.synchronize();
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[std::size_t(i)], i);
  EXPECT_NE(ran_on, std::this_thread::get_id());
}

TEST(CommStream, AnEventPassesAfterTheWorkBefore) {
  Stream& stream = device().comm_stream();
  Door first, second;
  stream.submit([&] { first.wait(); });
  const auto early = stream.record();
  stream.submit([&] { second.wait(); });
  const auto late = stream.record();
  EXPECT_FALSE(early->has_passed());
  EXPECT_FALSE(early->wait(deadline_after(0.01)));
  first.open();
  EXPECT_TRUE(early->wait());
  EXPECT_FALSE(late->has_passed());
  second.open();
  EXPECT_TRUE(late->wait());
  EXPECT_TRUE(late->has_passed());
}

TEST(CommStream, WaitsForAnEventOfAnotherStream) {
  Stream& ahead = device(22).comm_stream();
  Stream& behind = device(23).comm_stream();
  Door door;
  int value = 0;
  int seen = 0;
  ahead.submit([&] {
    door.wait();
    value = 7;
  });
  behind.wait(ahead.record());
  behind.submit([&] { seen = value; });
  EXPECT_FALSE(behind.record()->has_passed());
  door.open();
  behind.synchronize();
  EXPECT_EQ(seen, 7);
}

TEST(StorageUse, MemoryIsKeptUntilItsStreamHasPassed) {
  LogicalDevice& own = device(24);
  Stream& stream = own.comm_stream();
  Door door;
  void* address = nullptr;
  {
    Storage storage(own, 100'000);
    address = storage.data();
    stream.submit([&] { door.wait(); });
    storage.record_use(stream);
    storage.record_use(stream);  // twice is once
  }
  EXPECT_EQ(own.memory().statistics().current_bytes, 0u);
  {
    Storage other(own, 100'000);
    EXPECT_NE(other.data(), address);
  }
  door.open();
  stream.synchronize();
  Storage first(own, 100'000), second(own, 100'000);
  EXPECT_TRUE(first.data() == address || second.data() == address);
}

}  // namespace
}  // namespace lockstep::runtime
