#include "engine/comm/transport/tcp/frame.h"

#include <bit>
#include <cstring>

namespace lockstep::comm {
namespace {

static_assert(std::endian::native == std::endian::little, "headers are copied as they lie");

constexpr std::size_t kChecksumAt = 44;

struct FrameLayout {
  std::uint32_t magic = kFrameMagic;
  std::uint8_t kind = 0;
  std::uint8_t operation = 0;
  std::uint8_t dtype = 0;
  std::uint8_t op = 0;
  std::uint8_t plan = 0;
  std::array<std::uint8_t, 3> zeros{};
  std::int32_t root = -1;
  std::uint64_t sequence = 0;
  std::uint64_t num_elements = 0;
  std::uint64_t num_bytes = 0;
  std::uint32_t more_zeros = 0;
  std::uint32_t checksum = 0;
  std::array<std::uint8_t, 16> last_zeros{};
};
static_assert(sizeof(FrameLayout) == kFrameHeaderBytes &&
              offsetof(FrameLayout, checksum) == kChecksumAt);

// FNV-1a over 32-bit words, the checksum's own left out.
std::uint32_t checksum_of(const FrameLayout& layout) {
  std::array<std::uint32_t, kFrameHeaderBytes / 4> words;
  std::memcpy(words.data(), &layout, sizeof layout);
  std::uint32_t sum = 2166136261U;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i != kChecksumAt / 4) sum = (sum ^ words[i]) * 16777619U;
  }
  return sum;
}

bool has_known_names(const FrameLayout& layout) {
  return layout.kind >= static_cast<std::uint8_t>(FrameKind::announce) &&
         layout.kind <= static_cast<std::uint8_t>(FrameKind::goodbye) &&
         layout.operation <= static_cast<std::uint8_t>(Operation::recv) &&
         layout.dtype <= static_cast<std::uint8_t>(DType::uint8) &&
         layout.op <= static_cast<std::uint8_t>(ReduceOp::max) &&
         layout.plan <= static_cast<std::uint8_t>(plan::AllReducePlan::hierarchical);
}

std::uint64_t max_payload_bytes(FrameKind kind) {
  if (kind == FrameKind::data) return kMaxMessageBytes;
  return kind == FrameKind::failure ? kMaxFailureBytes : kMaxPayloadBytes;
}

}  // namespace

HeaderBytes encode(const FrameHeader& header) {
  FrameLayout layout;
  layout.kind = static_cast<std::uint8_t>(header.kind);
  layout.operation = static_cast<std::uint8_t>(header.call.operation);
  layout.dtype = static_cast<std::uint8_t>(header.call.dtype);
  layout.op = static_cast<std::uint8_t>(header.call.op);
  layout.plan = static_cast<std::uint8_t>(header.call.plan);
  layout.root = header.call.root;
  layout.sequence = header.call.sequence;
  layout.num_elements = header.call.num_elements;
  layout.num_bytes = header.num_bytes;
  layout.checksum = checksum_of(layout);
  HeaderBytes bytes;
  std::memcpy(bytes.data(), &layout, sizeof layout);
  return bytes;
}

std::optional<FrameHeader> decode(std::span<const std::byte, kFrameHeaderBytes> bytes) {
  FrameLayout layout;
  std::memcpy(&layout, bytes.data(), sizeof layout);
  if (layout.magic != kFrameMagic || layout.checksum != checksum_of(layout)) return std::nullopt;
  if (!has_known_names(layout)) return std::nullopt;
  FrameHeader header;
  header.kind = static_cast<FrameKind>(layout.kind);
  if (layout.num_bytes > max_payload_bytes(header.kind)) return std::nullopt;
  header.call.operation = static_cast<Operation>(layout.operation);
  header.call.dtype = static_cast<DType>(layout.dtype);
  header.call.op = static_cast<ReduceOp>(layout.op);
  header.call.plan = static_cast<plan::AllReducePlan>(layout.plan);
  header.call.root = layout.root;
  header.call.sequence = layout.sequence;
  header.call.num_elements = layout.num_elements;
  header.num_bytes = layout.num_bytes;
  return header;
}

}  // namespace lockstep::comm
