// What the ranks of a thread group share: flags on cache lines of their own, mailboxes, and the
// group's failure.
//
// Every flag has one writer. A waiting rank spins on the flag itself; before it sleeps it says so,
// and whoever writes a flag rings the doorbell of those that said so. Both sides use sequentially
// consistent operations, so that either the writer sees the sleeper or the sleeper sees the flag.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "engine/comm/first_failure.h"
#include "engine/comm/transport/announcement.h"
#include "engine/comm/transport/staging.h"
#include "engine/comm/transport/transport.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm {

struct alignas(kCacheLine) MessageSlot {
  std::atomic<Ticket> number{0};  // of the message in it, counted from 1
  const std::byte* data = nullptr;
  std::size_t num_bytes = 0;
};

// The messages from one rank to another.
struct Channel {
  std::array<MessageSlot, kMaxOpenMessages> slots;
  Flag<Ticket> num_released;
};

// Copied messages from one rank to another (send and recv).
struct Mailbox {
  struct Letter {
    CallHeader call;
    std::vector<std::byte> data;
    DeviceLetter on_device;  // in place of data
  };
  std::mutex mutex;
  std::deque<Letter> letters;
  std::atomic<std::uint64_t> num_posted{0};
};

struct RankState {
  Announcements announced;
  Flag<std::uint64_t> finished_shared;  // number of the last call in which it was called
  Flag<std::uint32_t> in_data;          // 1 between begin_data() and end_data()
  Flag<std::uint32_t> has_left;
  Flag<std::uint32_t> is_sleeping;
  alignas(kCacheLine) runtime::WaitWord doorbell;
  Staging staging;  // here, so that it outlives a rank that leaves early
};

class Hub {
 public:
  // shared: somebody else computes on the ranks' cores while they wait.
  enum class Cores { own, shared };
  explicit Hub(int world_size, Cores cores = Cores::own);

  int world_size() const { return world_size_; }
  RankState& rank(int r) { return ranks_[static_cast<std::size_t>(r)]; }
  const RankState& rank(int r) const { return ranks_[static_cast<std::size_t>(r)]; }
  Channel& channel(int from, int to) { return channels_[index(from, to)]; }
  Mailbox& mailbox(int from, int to) { return mailboxes_[index(from, to)]; }
  DeviceParts& device_parts() { return device_parts_; }

  // Wakes a rank if it sleeps; call it after a flag that it may wait for was written.
  void ring(int r) {
    if (rank(r).is_sleeping.value.load(std::memory_order_seq_cst) != 0) rank(r).doorbell.add(1);
  }
  void ring_all();

  // Rounds that a waiting rank spins.
  unsigned num_spins() const { return num_spins_; }

  void fail(const Error& error) {
    if (failure_.set(error)) ring_all();
  }
  const FirstFailure& failure() const { return failure_; }

  // See Transport::describe_missing.
  std::string describe_missing(std::uint64_t sequence) const;

 private:
  std::size_t index(int from, int to) const {
    return static_cast<std::size_t>(from) * static_cast<std::size_t>(world_size_) +
           static_cast<std::size_t>(to);
  }

  int world_size_;
  unsigned num_spins_;
  std::vector<RankState> ranks_;
  std::vector<Channel> channels_;
  std::vector<Mailbox> mailboxes_;
  DeviceParts device_parts_;
  FirstFailure failure_;
};

}  // namespace lockstep::comm
