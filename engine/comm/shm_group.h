// The transport between processes of one host. A message is copied into a slot of the memory that
// they share, and its receiver reads it there. A slot is small: larger chunks travel in pieces, so
// that a piece is still in a cache when it is read.
//
// Messages of send(), a CallHeader and the data, go through channels of their own. A thread copies
// them and hands them over, so that a sender never waits for its receiver.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "engine/comm/process_group.h"
#include "engine/comm/shm_segment.h"
#include "engine/comm/transport.h"
#include "engine/runtime/threads.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm {

class ShmTransport final : public Transport {
 public:
  // ranks: those on this host, in rising order; the transport numbers them 0, 1, ... The first one
  // makes the segment. Returns when all have attached.
  ShmTransport(const ProcessGroupOptions& options, const std::vector<int>& ranks);
  ~ShmTransport() override;

  void announce(const CallHeader& call, double timeout_seconds) override;
  CallHeader announced_by(int peer) override;

  void post(int to, Bytes data) override;
  const std::byte* take(int from) override;
  void release(int from) override;

  void send_message(int to, const CallHeader& call, Bytes data) override;
  void receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                       double timeout_seconds) override;

  void fail(const Error& error) noexcept override;
  void throw_if_failed() const override;
  const Announcements* announced(int rank) const override;

 private:
  // In the segment, see shm_group.cpp.
  struct Failure;
  struct Member;
  struct Slot;
  struct Channel;
  enum class Use : std::size_t { collective, send_recv };

  enum class Waited { done, failed, left, died, timed_out };

  // Messages of send() on their way to one rank.
  struct Outbox {
    std::uint64_t num_posted = 0;             // slots
    std::unique_ptr<runtime::Worker> worker;  // made when first needed
  };

  Failure& failure() const;
  Member& member(int m) const;
  Member& mine() const { return member(rank()); }
  std::size_t channel_index(Use use, int from, int to) const;
  Channel& channel(Use use, int from, int to) const;
  std::byte* slot_memory(Use use, int from, int to, std::uint64_t number) const;

  unsigned choose_num_spins() const;

  template <typename Done>
  void wait_for(int peer, const Done& done);
  template <typename Done>
  Waited sleep_until(int peer, const runtime::Deadline& deadline, const Done& done) const;
  Waited look_at(int peer, const runtime::Deadline& deadline) const;
  bool is_alive(int peer) const;
  [[noreturn]] void fail_waiting(int peer, Waited waited);
  int find_stopped(int peer) const;

  void write_slot(Use use, int to, std::uint64_t number, Bytes data);
  Bytes read_slot(Use use, int from, std::uint64_t number);
  void free_slot(Use use, int from, std::uint64_t number);
  void push(int to, Bytes message);
  bool wait_for_slot(int to, std::uint64_t number);

  std::size_t channels_at_;  // from the segment's beginning
  std::size_t slots_at_;
  ShmSegment segment_;
  unsigned num_spins_ = 0;                   // set when all have attached
  std::vector<FileDescriptor> processes_;    // of each rank (a pidfd), if it is another process
  std::vector<std::uint64_t> num_posted_;    // to each rank, in collectives
  std::vector<std::uint64_t> num_released_;  // of each rank's messages in collectives
  std::vector<std::uint64_t> num_received_;  // slots of what each rank sent by send()
  runtime::Deadline closing_deadline_;       // written before is_closing_
  std::atomic<bool> is_closing_{false};
  std::vector<Outbox> outboxes_;  // to each rank
};

// The transport of a group on several hosts: shared memory to the ranks of this host, TCP to all
// others. hosts: GroupShape::hosts. to_host: between the ranks of this host, which it numbers 0, 1,
// ... to_network: to all other ranks, with the numbers of the whole group.
std::unique_ptr<Transport> shm_and_tcp(std::vector<int> hosts,
                                       std::unique_ptr<ShmTransport> to_host,
                                       std::unique_ptr<Transport> to_network);

}  // namespace lockstep::comm
