// The transport between threads of one process. Nothing is copied on the way: a message is a
// pointer, and the receiver reads the sender's memory.
#pragma once

#include <memory>
#include <vector>

#include "engine/comm/transport/arena/arena_transport.h"
#include "engine/comm/transport/thread/thread_arena.h"

namespace lockstep::comm {

class ThreadTransport : public ArenaTransport, private AddressSpace {
 public:
  // Its destructor leaves the group: whoever still needs this rank fails.
  ThreadTransport(std::shared_ptr<ThreadArena> arena, int rank);

  std::string_view name() const override { return "thread"; }

  void begin_data() override;
  void end_data() noexcept override;
  void abandon(const Error& error) noexcept override;

  Ticket post(int to, Bytes data) override;
  void wait_sent(int to, Ticket ticket) override { wait_released(to, ticket); }
  std::byte* staging(std::size_t num_bytes) override;
  void posted_from_staging(int to, Ticket ticket) override;

  AddressSpace* address_space() override { return this; }

  void send_message(int to, const CallHeader& call, Bytes data) override;
  void receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                       double timeout_seconds) override;

 private:
  void finish_shared() override;
  DeviceParts& device_parts() override { return arena_->device_parts(); }
  void send_on_device(int to, const CallHeader& call, DeviceLetter letter) override;
  DeviceLetter receive_on_device(int from, const CallHeader& call, double timeout_seconds) override;

  void put_letter(int to, Mailbox::Letter letter);
  // Waits for the next letter of a rank.
  Mailbox::Letter take_letter(int from, const CallHeader& call, double timeout_seconds);

  arena::Member& mine() { return group_.member(rank()); }

  std::shared_ptr<ThreadArena> arena_;
  std::vector<std::uint64_t> num_letters_;  // received from each rank
};

}  // namespace lockstep::comm
