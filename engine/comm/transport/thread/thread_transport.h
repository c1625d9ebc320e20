// The transport between threads of one process. Nothing is copied on the way: a message is a
// pointer, and the receiver reads the sender's memory.
#pragma once

#include <memory>
#include <vector>

#include "engine/comm/absent_rank.h"
#include "engine/comm/transport/thread/hub.h"

namespace lockstep::comm {

class ThreadTransport : public Transport, private AddressSpace {
 public:
  ThreadTransport(std::shared_ptr<Hub> hub, int rank);
  // Leaves the group: whoever still needs this rank fails.
  ~ThreadTransport() override;

  int rank() const override { return rank_; }
  int world_size() const override { return hub_->world_size(); }
  std::string_view name() const override { return "thread"; }

  void announce(const CallHeader& call, double timeout_seconds) override;
  CallHeader announced_by(int peer) override;

  void begin_data() override;
  void end_data() noexcept override;
  void abandon(const Error& error) noexcept override;

  Ticket post(int to, Bytes data) override;
  void wait_sent(int to, Ticket ticket) override;
  const std::byte* take(int from, std::size_t num_bytes) override;
  void release(int from) override;
  std::byte* staging(std::size_t num_bytes) override;
  void posted_from_staging(int to, Ticket ticket) override;

  AddressSpace* address_space() override { return this; }

  void send_message(int to, const CallHeader& call, Bytes data) override;
  void receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                       double timeout_seconds) override;

  void fail(const Error& error) override { hub_->fail(error); }
  void throw_if_failed() const override { hub_->failure().throw_if_set(); }
  std::string describe_missing(std::uint64_t sequence) const override {
    return hub_->describe_missing(sequence);
  }

 private:
  void finish_shared() override;
  DeviceParts& device_parts() override { return hub_->device_parts(); }
  void send_on_device(int to, const CallHeader& call, DeviceLetter letter) override;
  DeviceLetter receive_on_device(int from, const CallHeader& call, double timeout_seconds) override;

  // Returns when done() is true. Fails the group when the peer has left, or at the time limit.
  template <typename Done>
  void wait_for(int peer, const Done& done);
  // Sleeps until done() is true or the group has failed.
  template <typename Done>
  void sleep_until(int peer, const Done& done);
  RankWait wait_of(int peer) const { return {rank_, peer, call_, timeout_seconds_}; }
  void put_letter(int to, Mailbox::Letter letter);
  // Waits for the next letter of a rank.
  Mailbox::Letter take_letter(int from, const CallHeader& call, double timeout_seconds);
  [[noreturn]] void fail_on_letter(int from, const CallHeader& expected, const CallHeader& found);
  void ring_others();

  RankState& mine() { return hub_->rank(rank_); }

  std::shared_ptr<Hub> hub_;
  int rank_;
  CallHeader call_;  // the current one
  double timeout_seconds_ = 0;
  std::vector<Ticket> num_posted_;          // to each rank
  std::vector<Ticket> num_released_;        // of each rank's messages
  std::vector<std::uint64_t> num_letters_;  // received from each rank
};

}  // namespace lockstep::comm
