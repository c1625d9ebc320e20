// The transport between processes of one host. A message is copied into a slot of the common
// segment and read there by its receiver, so a buffer may change as soon as it has been posted.
//
// A slot is small (max_message_bytes): larger chunks travel in pieces, and what was copied in is
// still in a cache when it is read.
#pragma once

#include <functional>
#include <vector>

#include "engine/comm/absent_rank.h"
#include "engine/comm/transport/shm/group.h"
#include "engine/comm/transport/shm/letters.h"
#include "engine/comm/transport/transport.h"

namespace lockstep::comm {

struct ShmTransportOptions {
  int index = 0;           // of this rank within the group
  std::vector<int> ranks;  // what the ranks of the group are called in messages: 0, 1, ..., or
                           // their numbers in a larger group
  double timeout_seconds = 30;
  // Called now and then while this rank waits for the others to attach; throws when it need not.
  std::function<void()> throw_if_hopeless = [] {};
};

class ShmTransport final : public Transport {
 public:
  // Bytes of the segment of a group.
  static std::size_t segment_bytes(int world_size);

  // Returns when all ranks have attached. The segment has segment_bytes(ranks.size()) bytes.
  // Throws Error{Timeout} that names the ranks that are missing.
  ShmTransport(shm::SharedSegment segment, const ShmTransportOptions& options);
  // Delivers what was sent, then leaves the group: whoever still needs this rank fails.
  ~ShmTransport() override;

  int rank() const override { return group_.me(); }
  int world_size() const override { return group_.size(); }
  std::string_view name() const override { return "shm"; }

  void announce(const CallHeader& call, double timeout_seconds) override;
  CallHeader announced_by(int peer) override;

  void begin_data() override { group_.throw_if_failed(); }
  void end_data() noexcept override {}
  // Nobody ever uses another rank's own memory, so there is nothing to wait for.
  void abandon(const Error& error) noexcept override { group_.fail(error); }

  std::size_t max_message_bytes() const override { return group_.layout().slot_bytes(); }
  // So much that each rank's part of it is one message.
  std::size_t pass_bytes() const override;
  Ticket post(int to, Bytes data) override;
  void wait_sent(int, Ticket) override {}  // it was copied
  const std::byte* take(int from, std::size_t num_bytes) override;
  void release(int from) override;
  std::byte* staging(std::size_t num_bytes) override;
  void posted_from_staging(int, Ticket) override {}

  void send_message(int to, const CallHeader& call, Bytes data) override;
  void receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                       double timeout_seconds) override;

  void fail(const Error& error) override { group_.fail(error); }
  void throw_if_failed() const override { group_.throw_if_failed(); }
  std::string describe_missing(std::uint64_t sequence) const override {
    return group_.describe_missing(sequence);
  }

  // This rank now waits for one that it reaches by another transport (by its number in the whole
  // group), so that a rank of this host that waits for this one can say who is late. nobody: it got
  // what it waited for.
  static constexpr int nobody = -1;
  void note_wait_elsewhere(int other) { group_.note_wait_elsewhere(other); }

 private:
  // Returns when done() is true; else fails the group.
  template <typename Done>
  void wait_for(int peer, const Done& done);
  [[noreturn]] void fail_waiting(int peer, shm::Waited waited);
  RankWait wait_of(int peer) const {
    return {group_.name_of(rank()), group_.name_of(peer), call_, timeout_seconds_};
  }
  Error late(int peer) const;

  shm::Group group_;
  shm::Letters letters_;
  CallHeader call_;  // the current one
  double timeout_seconds_;
  std::vector<Ticket> num_posted_;    // to each rank
  std::vector<Ticket> num_released_;  // of each rank's messages
  std::vector<std::byte> staging_;
};

}  // namespace lockstep::comm
