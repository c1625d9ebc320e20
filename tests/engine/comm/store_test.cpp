#include <fmt/format.h>
#include <gmock/gmock.h>

#include <thread>

#include "engine/comm/store/tcp_store.h"
#include "tests/support/expect_error.h"
#include "tests/support/ipv6.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::expect_error;
using ::testing::HasSubstr;

const std::string kToken = "a token of this test";

runtime::Deadline in_seconds(double seconds) {
  return runtime::deadline_after(seconds);
}

// Over the loopback of IPv4 or IPv6.
class StoreOf : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const bool is_ipv6 = std::string_view(GetParam()) == "ipv6";
    if (is_ipv6 && !lockstep::testing::has_ipv6()) GTEST_SKIP() << "no IPv6 here";
    address_ = is_ipv6 ? "::1" : "127.0.0.1";
    server_ = std::make_unique<TcpStoreServer>(TcpStoreServerOptions{address_, 0, kToken});
  }
  std::unique_ptr<Store> open() {
    return std::make_unique<TcpStoreClient>(
        TcpStoreClientOptions{address_, server_->port(), kToken});
  }

 private:
  std::string address_;
  std::unique_ptr<TcpStoreServer> server_;
};

TEST_P(StoreOf, KeepsAnyBytesUnderAnyKey) {
  const auto writer = open();
  const auto reader = open();
  std::string all_bytes;
  for (int value = 0; value < 256; ++value) all_bytes.push_back(static_cast<char>(value));
  const std::string large(kMaxValueBytes, 'x');
  writer->set("empty", "");
  writer->set(all_bytes, all_bytes);
  writer->set("large", large);
  EXPECT_EQ(reader->get("empty", in_seconds(5)), "");
  EXPECT_EQ(reader->get(all_bytes, in_seconds(5)), all_bytes);
  EXPECT_EQ(reader->get("large", in_seconds(5)), large);
  EXPECT_EQ(reader->try_get("none"), std::nullopt);
}

TEST_P(StoreOf, AddCountsAcrossClientsAndRefusesWhatIsNoNumber) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const auto store = open();
      for (int i = 0; i < 50; ++i) store->add("n", i % 2 == 0 ? 3 : -1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto store = open();
  EXPECT_EQ(store->add("n", 0), 200);
  EXPECT_EQ(store->try_get("n"), "200");
  store->set("word", "12a");
  expect_error(ErrorCode::Usage, "[store] cannot add to the key \"word\"",
               [&] { store->add("word", 1); });
  EXPECT_EQ(store->add("n", 1), 201) << "the connection is whole";
}

TEST_P(StoreOf, GetReturnsWhenTheKeyCame) {
  const auto waiting = open();
  const auto setting = open();
  std::string found;
  std::thread thread([&] { found = waiting->get("d", in_seconds(30)); });
  for (const char* key : {"c", "d"}) setting->set(key, key);
  thread.join();
  EXPECT_EQ(found, "d");
}

TEST_P(StoreOf, ADeadlineNamesTheKeyThatDidNotCome) {
  const auto store = open();
  store->set("here", "");
  expect_error(ErrorCode::Timeout, "[store] the key \"address of rank 3\" was not there",
               [&] { store->get("address of rank 3", in_seconds(0.02)); });
  expect_error(ErrorCode::Timeout, "the key \"x\"", [&] { store->get("x", in_seconds(0)); });
  EXPECT_EQ(store->try_get("x"), std::nullopt);
  EXPECT_EQ(store->try_get("here"), "");
}

TEST_P(StoreOf, AnAbortEndsPendingAndLaterCallsOfEverybody) {
  const auto store = open();
  std::thread thread([&] {
    const auto waiting = open();
    expect_error(ErrorCode::Comm, "[join] two processes have rank 1",
                 [&] { waiting->get("never", in_seconds(60)); });
  });
  store->abort(Error(ErrorCode::Usage, "join", "two processes have rank 1"));
  store->abort(Error(ErrorCode::Timeout, "join", "another reason"));
  thread.join();
  expect_error(ErrorCode::Comm, "[join] two processes have rank 1", [&] { store->set("a", ""); });
  expect_error(ErrorCode::Comm, "two processes", [&] { store->try_get("a"); });
}

TEST_P(StoreOf, ABarrierHoldsEverybodyBack) {
  constexpr int kWorldSize = 4;
  std::atomic<int> num_arrived{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kWorldSize; ++rank) {
    threads.emplace_back([&, rank] {
      const auto store = open();
      ++num_arrived;
      store->barrier("start", rank, kWorldSize, 30);
      EXPECT_EQ(num_arrived.load(), kWorldSize);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(StoreOf, ABarrierNamesTheRanksThatDidNotCome) {
  const auto store = open();
  expect_error(ErrorCode::Timeout, "[start] 1 of 4 ranks came within 0.02 s, missing: rank 0, 2, 3",
               [&] { store->barrier("start", 1, 4, 0.02); });
}

TEST(MemoryStore, ALongBarrierSaysForWhomItWaits) {
  MemoryStore store;
  ::testing::internal::CaptureStderr();
  EXPECT_THROW(store.barrier("start", 0, 3, 3.2), Error);
  EXPECT_NE(
      ::testing::internal::GetCapturedStderr().find("waiting for rank 1, 2 of 3, 3.2 s at most"),
      std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Kinds, StoreOf, ::testing::Values("ipv4", "ipv6"),
                         [](const auto& kind) { return std::string(kind.param); });

}  // namespace
}  // namespace lockstep::comm
