// What send() sends: letters of any length, beside the collectives, cut into pieces that go through
// the slots of a channel of their own. What does not fit there at once is copied and handed over by
// a thread, so that a sender never waits for its receiver.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "engine/comm/transport/arena/group.h"
#include "engine/runtime/threads.h"

namespace lockstep::comm::shm {

using arena::Waited;

class Letters {
 public:
  explicit Letters(const arena::Group& group);
  // Waits until the slots have taken all letters, at most as long as the last limit_closing() said.
  ~Letters();

  void limit_closing(double seconds) { closing_seconds_ = seconds; }

  void send(int to, const CallHeader& call, Bytes data);

  // Waits for the next letter of a rank; tells which call sent it. To be followed by read_body.
  Waited read_head(int from, const runtime::Deadline& deadline, CallHeader& sent);
  // REQUIRES: data has the size that was sent.
  Waited read_body(int from, const runtime::Deadline& deadline, std::span<std::byte> data);

 private:
  // The line of letters to one rank.
  struct Outbox {
    Ticket num_posted = 0;
    std::unique_ptr<runtime::Worker> worker;  // made when first needed
    bool is_idle() const {
      return worker == nullptr || worker->num_posted() == worker->num_finished().load();
    }
  };

  std::size_t num_pieces(std::size_t num_bytes) const;
  bool fits_now(int to, std::size_t num_pieces) const;
  // The letter's pieces, in order; stops when the receiver is gone.
  void push(int to, const CallHeader& call, Bytes data);
  bool wait_for_slot(int to, Ticket number);

  const arena::Group& group_;
  std::vector<Outbox> outboxes_;
  std::vector<Ticket> num_released_;  // of each rank's pieces
  double closing_seconds_ = 30;
  std::atomic<bool> is_closing_{false};
  runtime::Deadline closing_deadline_;  // written before is_closing_
};

}  // namespace lockstep::comm::shm
