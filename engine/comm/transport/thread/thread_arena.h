// What the ranks of a thread group share: an arena on the heap, and what only threads can give each
// other: mailboxes, and the parts of a collective on devices.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/comm/transport/arena/arena.h"
#include "engine/comm/transport/arena/layout.h"
#include "engine/comm/transport/device_parts.h"
#include "engine/comm/transport/staging.h"

namespace lockstep::comm {

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

class ThreadArena final : public arena::Arena {
 public:
  // shared: somebody else computes on the ranks' cores while they wait.
  enum class Cores { own, shared };
  explicit ThreadArena(int world_size, Cores cores = Cores::own);

  std::byte* data() const override { return lines_[0].bytes; }
  int world_size() const { return static_cast<int>(stagings_.size()); }
  Cores cores() const { return cores_; }

  Mailbox& mailbox(int from, int to) {
    return mailboxes_[static_cast<std::size_t>(from) * stagings_.size() +
                      static_cast<std::size_t>(to)];
  }
  DeviceParts& device_parts() { return device_parts_; }
  // Here, so that it outlives a rank that leaves early.
  Staging& staging(int rank) { return stagings_[static_cast<std::size_t>(rank)]; }

 private:
  std::unique_ptr<CacheLine[]> lines_;
  Cores cores_;
  std::vector<Mailbox> mailboxes_;
  std::vector<Staging> stagings_;
  DeviceParts device_parts_;
};

}  // namespace lockstep::comm
