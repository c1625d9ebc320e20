// Transport: a group whose ranks exchange messages. memory_group.h, tcp_group.cpp and
// shm_and_tcp.cpp say how a message reaches its rank; the steps of a plan over messages are here.
//
// Messages from one rank to another arrive in the order in which they were posted.
// A destructor delivers what was posted and sent, for a bounded time, then leaves the group: peers
// that still need this rank fail with RankWait::left().
#pragma once

#include "engine/comm/group.h"

namespace lockstep::comm {

class Transport : public Group {
 public:
  using Group::Group;

  // The steps of plans, and send(), have messages of their own.
  enum class Use : std::size_t { plan, send };
  struct Message {
    CallHeader call;  // its sender's
    Bytes data;       // aligned for every element type
  };
  // Sends a message. When it returns, the data may change: it has been copied, or the kernel has
  // it. May wait for the receiver, but each pair of ranks has room for at least one whole message
  // that its receiver has not taken yet, and a rank that waits goes on receiving. (So ranks that
  // all post, then all take, never wait for each other in a circle.)
  virtual void post(Use use, int to, const CallHeader& call, Bytes data) = 0;
  // Waits for the next message from a rank; valid until release(). One message from each of several
  // ranks may be held at a time.
  virtual Message take(Use use, int from) = 0;
  virtual void release(Use use, int from) = 0;

  void run_schedule(const plan::RankSchedule& schedule, TensorView buffer,
                    const Reduction& reduction) override;
  void send_message(int to, const CallHeader& call, Bytes data) override;
  void receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                       double timeout_seconds) override;
  void post_note(int to, std::int64_t note) override;
  std::int64_t take_note(int from) override;

 private:
  void run_step(const plan::RankSchedule::Step& step, TensorView buffer,
                const Reduction& reduction);
};

}  // namespace lockstep::comm
