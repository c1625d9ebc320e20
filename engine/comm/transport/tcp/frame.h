// The wire format between two ranks, after the hello of the one that connects, and both ends of it
// without a socket. A stream of frames, each a FrameHeader, little-endian, and a payload.
//
//   kind      payload                     means
//   announce  none                        the rank called this collective
//   data      elements                    the next message of the collective's plan
//   message   elements                    a message of send(); receivers compare size and dtype
//   failure   error (comm_errors.h)       the group failed, with this error
//   goodbye   none                        the rank leaves properly; nothing follows
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/comm/announcements.h"
#include "engine/comm/store/socket.h"

namespace lockstep::comm {

enum class FrameKind : std::uint32_t { announce = 1, data, message, failure, goodbye };

// The largest message of a plan. Large chunks travel in pieces, so that one is summed while the
// next is on its way, and is found in a cache; large enough that their system calls do not count.
inline constexpr std::size_t kMaxMessageBytes = 512 * 1024;
inline constexpr std::size_t kMaxFailureBytes = 64 * 1024;

struct FrameHeader {
  static constexpr std::uint32_t kMagic = 0x3553464c;
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 40;

  FrameKind kind = FrameKind::announce;
  std::uint32_t magic = kMagic;
  PackedCall call;
  std::uint64_t num_bytes = 0;  // of the payload

  // False for bytes that are no header.
  bool is_valid() const { return magic == kMagic && num_bytes <= kMaxBytes; }
};
static_assert(sizeof(FrameHeader) == 40 && std::endian::native == std::endian::little,
              "headers are sent as they lie");

// A frame that has arrived. Its payload is aligned for every element type.
struct Frame {
  FrameHeader header;
  std::vector<CacheLine> memory;

  std::span<const std::byte> payload() const {
    return std::as_bytes(std::span(memory)).first(static_cast<std::size_t>(header.num_bytes));
  }
};

// Bytes go in, frames come out.
class FrameReader {
 public:
  using Handler = std::function<void(Frame)>;

  // Space for the next bytes of the stream; never empty.
  std::span<std::byte> space();
  // Says how many were; calls the handler for each frame that they complete. False when they are no
  // frames: the stream is of no use any more.
  bool received(std::size_t num_bytes, const Handler& handler);
  // Gives back the memory of a frame, for the next ones.
  void recycle(Frame frame);

 private:
  std::span<std::byte> payload_space();

  std::array<std::byte, 4096> buffer_;  // headers, and payloads as far as they come with them
  std::size_t num_buffered_ = 0;
  std::optional<Frame> frame_;   // its payload is not complete
  std::size_t num_payload_ = 0;  // bytes that have come
  std::vector<std::vector<CacheLine>> spare_;
};

// Frames that wait for the kernel to take them, in order.
class FrameWriter {
 public:
  // Returns the frame's number. The payload is borrowed until num_sent() has reached it, or
  // keep_unsent().
  std::uint64_t add(FrameHeader header, std::span<const std::byte> payload);
  // Copies what is borrowed.
  void keep_unsent();
  // Gives the kernel what it takes now. When the connection is over, all frames count as sent, and
  // so do later ones.
  void flush(const Socket& socket);

  std::uint64_t num_sent() const { return num_added_ - frames_.size(); }
  bool has_unsent() const { return !frames_.empty(); }

 private:
  struct Outgoing {
    FrameHeader header;
    std::span<const std::byte> payload;
    std::vector<std::byte> kept;  // empty: the payload is borrowed
    std::size_t num_sent = 0;     // bytes of header and payload
  };

  std::deque<Outgoing> frames_;
  std::uint64_t num_added_ = 0;
  bool is_over_ = false;
};

}  // namespace lockstep::comm
