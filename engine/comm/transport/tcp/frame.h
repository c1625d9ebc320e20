// The wire format between two ranks, after the hello of the one that connects (mesh.h), and both
// ends of it without a socket. A stream of frames, each a header of 64 bytes and a payload.
//
//   byte  0  u32  kFrameMagic
//         4  u8   FrameKind
//         5  u8   Operation, u8 DType, u8 ReduceOp, u8 AllReducePlan
//         9  3 bytes 0
//        12  i32  root
//        16  u64  sequence number of the call
//        24  u64  num_elements of the call
//        32  u64  bytes of the payload
//        40  4 bytes 0
//        44  u32  checksum of all the other bytes (FNV-1a)
//        48  16 bytes 0
//
//   kind      payload                     means
//   announce  none                        the rank called this collective
//   data      elements                    the next message of the collective's plan
//   message   elements                    a message of send(); receivers compare size and dtype
//   failure   error (comm_errors.h)       the group failed, with this error
//   goodbye   none                        the rank leaves properly; nothing follows
#pragma once

#include <array>
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

enum class FrameKind : std::uint8_t { announce = 1, data, message, failure, goodbye };

inline constexpr std::size_t kFrameHeaderBytes = 64;
inline constexpr std::uint32_t kFrameMagic = 0x3253464c;
// A header that says more is no header.
inline constexpr std::uint64_t kMaxPayloadBytes = std::uint64_t{1} << 40;
// The largest message of a plan. Large chunks travel in pieces, so that one is summed while the
// next is on its way, and is found in a cache; large enough that their system calls do not count.
inline constexpr std::size_t kMaxMessageBytes = 512 * 1024;
inline constexpr std::size_t kMaxFailureBytes = 64 * 1024;

struct FrameHeader {
  FrameKind kind = FrameKind::announce;
  CallHeader call;  // without its memory
  std::uint64_t num_bytes = 0;
};

using HeaderBytes = std::array<std::byte, kFrameHeaderBytes>;

HeaderBytes encode(const FrameHeader& header);
// None when the bytes are no header.
std::optional<FrameHeader> decode(std::span<const std::byte, kFrameHeaderBytes> bytes);

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
  std::optional<Frame> frame_;  // its payload is not complete
  std::size_t num_payload_ = 0;
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
    HeaderBytes header;
    std::span<const std::byte> payload;
    std::vector<std::byte> kept;  // empty: the payload is borrowed
    std::size_t num_sent = 0;     // bytes of header and payload
  };

  std::deque<Outgoing> frames_;
  std::uint64_t num_added_ = 0;
  bool is_over_ = false;
};

}  // namespace lockstep::comm
