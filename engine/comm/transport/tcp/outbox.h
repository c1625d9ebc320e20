// The sending half of a connection, without its socket: frames that wait for the kernel to take
// them, in order. Data of plans is not copied; it is borrowed until the kernel has it.
#pragma once

#include <deque>
#include <vector>

#include "engine/comm/store/socket.h"
#include "engine/comm/transport/tcp/frame.h"

namespace lockstep::comm {

class Outbox {
 public:
  // Adds a frame whose payload stays in the caller's memory until num_sent() has counted it.
  void borrow(const FrameHeader& header, std::span<const std::byte> payload);
  // Adds a frame and its payload.
  void own(const FrameHeader& header, std::vector<std::byte> payload);
  // Copies what the kernel has not taken yet of the last frame, which was borrowed.
  void keep_last();

  bool is_empty() const { return frames_.empty(); }
  // Frames with borrowed payload that the kernel has taken so far.
  std::uint64_t num_sent() const { return num_sent_; }
  std::uint64_t num_borrowed() const { return num_borrowed_; }

  // Gives the kernel what it takes now. False when the connection is over; it is closed then.
  bool flush(const Socket& socket);
  // The connection is over: all frames count as sent, and so do those that come later.
  void close();
  // Lets go of borrowed memory: frames that have not begun are dropped, and one that has begun
  // ends in zeros.
  void forget_borrowed();

 private:
  struct Frame {
    HeaderBytes header;
    const std::byte* data = nullptr;  // null: zeros
    std::size_t num_bytes = 0;
    std::vector<std::byte> owned;
    bool is_borrowed = false;
    std::size_t num_sent = 0;  // of header, payload and padding
    std::size_t num_all_bytes() const { return kFrameHeaderBytes + padded_bytes(num_bytes); }
  };

  void add(Frame frame);
  void drop_front();

  std::deque<Frame> frames_;
  std::uint64_t num_borrowed_ = 0;
  std::uint64_t num_sent_ = 0;
  bool is_over_ = false;
};

}  // namespace lockstep::comm
