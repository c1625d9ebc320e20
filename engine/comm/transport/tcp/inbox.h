// The receiving half of a connection, without its socket: bytes go in, frames come out.
//
// Messages of plans stay where they arrived, in one contiguous buffer, until they are released; a
// short window is read at a time, so that the buffer is found in a cache. Everything else is
// handed over as soon as it is complete, also when it comes behind messages that nobody has taken.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "engine/comm/transport/tcp/frame.h"

namespace lockstep::comm {

class Inbox {
 public:
  // Gets every complete frame that is no data.
  using Handler = std::function<void(const FrameHeader&, std::vector<std::byte> payload)>;

  explicit Inbox(Handler handler) : handler_(std::move(handler)) {}

  // Where the next bytes of the stream are to be written; never empty.
  std::span<std::byte> space();
  // Says how many were. False when they are no frames: the stream is of no use any more.
  bool received(std::size_t num_bytes);

  // The first message, once its header is there.
  const FrameHeader* message() const { return messages_.empty() ? nullptr : &messages_[0].header; }
  bool is_complete() const;
  // The first message's payload, 64-byte aligned; valid until release().
  // REQUIRES: is_complete().
  const std::byte* hold();
  void release();

 private:
  struct alignas(kFrameHeaderBytes) Line {
    std::byte bytes[kFrameHeaderBytes];
  };
  struct Message {
    FrameHeader header;
    std::uint64_t begin = 0;  // of the payload, counted from the start of the stream
  };

  bool parse();
  void start(const FrameHeader& header);
  void finish_payload();
  void make_room(std::size_t num_bytes);
  std::byte* at(std::uint64_t position) {
    return buffer_.data()->bytes + static_cast<std::size_t>(position - origin_);
  }
  std::uint64_t first_needed() const { return messages_.empty() ? parsed_ : messages_[0].begin; }

  Handler handler_;
  std::vector<Line> buffer_;
  std::uint64_t origin_ = 0;    // the stream position of the buffer's first byte, of a line's start
  std::uint64_t received_ = 0;  // stream positions: everything before it is here,
  std::uint64_t parsed_ = 0;    // and the next header begins here (it may be ahead of received_)
  std::size_t window_ = 0;      // bytes worth asking for at a time
  std::deque<Message> messages_;
  bool is_held_ = false;
  std::vector<std::vector<Line>> retired_;  // older buffers, of which one holds the held message
  // A frame whose payload goes to memory of its own, and how much of it (filled up) is here.
  std::optional<FrameHeader> frame_;
  std::vector<std::byte> payload_;
  std::size_t num_payload_ = 0;
};

}  // namespace lockstep::comm
