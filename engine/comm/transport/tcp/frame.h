// The wire format between two ranks, after the token handshake (purpose "tcp") and a greeting
// (mesh.h). A stream of frames, each a header of 64 bytes and a payload that is filled up with
// zeros to a multiple of 64, so that what lies behind a header is aligned for every element type.
//
//   byte  0  u32  kFrameMagic
//         4  u8   FrameKind
//         5  u8   Operation, u8 DType, u8 ReduceOp, u8 AllReducePlan
//         9  3 bytes 0
//        12  i32  root
//        16  u64  sequence number of the call
//        24  u64  num_elements of the call
//        32  u64  bytes of the payload, not filled up
//        40  4 bytes 0
//        44  u32  checksum of all the other bytes (FNV-1a)
//        48  16 bytes 0
//
//   kind      payload                     means
//   announce  none                        the rank called this collective
//   data      elements                    the next message of the collective's plan
//   letter    elements                    a message of send(); receivers compare size and dtype
//   failure   error (error_bytes.h)       the group failed, with this error
//   goodbye   none                        the rank leaves properly; nothing follows
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "engine/comm/collective_call.h"

namespace lockstep::comm {

enum class FrameKind : std::uint8_t { announce = 1, data, letter, failure, goodbye };

inline constexpr std::size_t kFrameHeaderBytes = 64;
inline constexpr std::uint32_t kFrameMagic = 0x3153464c;
// A header that says more is no header.
inline constexpr std::uint64_t kMaxPayloadBytes = std::uint64_t{1} << 40;
// Of a message of a plan, which a receiver takes memory for as soon as its header has come. Large
// chunks travel in pieces, so that one is summed while the next is on its way, and is found in a
// cache; large enough that their system calls do not count.
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

// The payload with what fills it up.
constexpr std::size_t padded_bytes(std::uint64_t num_bytes) {
  return static_cast<std::size_t>((num_bytes + kFrameHeaderBytes - 1) / kFrameHeaderBytes *
                                  kFrameHeaderBytes);
}

}  // namespace lockstep::comm
