// The transport between processes of one host. A message is copied into a slot of the common
// segment and read there by its receiver, so a buffer may change as soon as it has been posted.
//
// A slot is small (max_message_bytes): larger chunks travel in pieces, and what was copied in is
// still in a cache when it is read.
#pragma once

#include <functional>
#include <vector>

#include "engine/comm/transport/arena/arena_transport.h"
#include "engine/comm/transport/shm/letters.h"
#include "engine/comm/transport/shm/shared_segment.h"

namespace lockstep::comm {

struct ShmTransportOptions {
  int index = 0;           // of this rank within the group
  std::vector<int> ranks;  // what the ranks of the group are called in messages: 0, 1, ..., or
                           // their numbers in a larger group
  double timeout_seconds = 30;
  // Called now and then while this rank waits for the others to attach; throws when it need not.
  std::function<void()> throw_if_hopeless = [] {};
};

class ShmTransport final : public ArenaTransport {
 public:
  // Bytes of the segment of a group.
  static std::size_t segment_bytes(int world_size);

  // Returns when all ranks have attached. The segment has segment_bytes(ranks.size()) bytes.
  // Throws Error{Timeout} that names the ranks that are missing.
  ShmTransport(shm::SharedSegment segment, const ShmTransportOptions& options);
  // Delivers what was sent, then leaves the group: whoever still needs this rank fails.
  ~ShmTransport() override = default;

  std::string_view name() const override { return "shm"; }

  void begin_data() override { group_.throw_if_failed(); }
  void end_data() noexcept override {}
  // Nobody ever uses another rank's own memory, so there is nothing to wait for.
  void abandon(const Error& error) noexcept override { group_.fail(error); }

  std::size_t max_message_bytes() const override { return group_.layout().slot_bytes(); }
  // So much that each rank's part of it is one message.
  std::size_t pass_bytes() const override;
  Ticket post(int to, Bytes data) override;
  void wait_sent(int, Ticket) override {}  // it was copied
  std::byte* staging(std::size_t num_bytes) override;
  void posted_from_staging(int, Ticket) override {}

  void send_message(int to, const CallHeader& call, Bytes data) override;
  void receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                       double timeout_seconds) override;

  // This rank now waits for one that it reaches by another transport (by its number in the whole
  // group), so that a rank of this host that waits for this one can say who is late. nobody: it got
  // what it waited for.
  static constexpr int nobody = -1;
  void note_wait_elsewhere(int other) { group_.note_wait_elsewhere(other); }

 private:
  shm::Letters letters_;
  std::vector<std::byte> staging_;
};

}  // namespace lockstep::comm
