// One rank's connection to another: socket, inbox and outbox together.
#pragma once

#include <deque>
#include <vector>

#include "engine/comm/transport/tcp/group_state.h"
#include "engine/comm/transport/tcp/inbox.h"
#include "engine/comm/transport/tcp/outbox.h"

namespace lockstep::comm {

class Peer {
 public:
  struct Letter {
    CallHeader call;
    std::vector<std::byte> data;
  };

  Peer(int rank, Socket socket, GroupState& group);

  int rank() const { return rank_; }
  const Socket& socket() const { return socket_; }
  Inbox& inbox() { return inbox_; }
  Outbox& outbox() { return outbox_; }
  std::deque<Letter>& letters() { return letters_; }

  // Takes what the socket has now, once. Says whether there was something, the end included. The
  // end without a goodbye, and bytes that are no frames, fail the group.
  bool receive();
  // Sends what the socket takes now.
  void send() { outbox_.flush(socket_); }

  // Nothing will be received any more.
  bool has_ended() const { return has_ended_; }
  // It said goodbye.
  bool has_left() const { return has_left_; }

 private:
  void handle(const FrameHeader& header, std::vector<std::byte> payload);
  void end(const Error& error);

  int rank_;
  Socket socket_;
  GroupState& group_;
  Inbox inbox_;
  Outbox outbox_;
  std::deque<Letter> letters_;
  bool has_ended_ = false;
  bool has_left_ = false;
};

}  // namespace lockstep::comm
