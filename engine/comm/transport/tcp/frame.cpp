#include "engine/comm/transport/tcp/frame.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

namespace lockstep::comm {
namespace {

static_assert(std::endian::native == std::endian::little, "headers are copied as they lie");

constexpr std::size_t kChecksumAt = 44;
// A payload gets memory as its bytes arrive, in steps of this size: a header alone takes none.
constexpr std::size_t kPayloadStep = 4 * 1024 * 1024;
constexpr std::size_t kMaxSpare = 8;

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
  if (kind == FrameKind::message) return kMaxPayloadBytes;
  return kind == FrameKind::failure ? kMaxFailureBytes : 0;
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

std::span<std::byte> FrameReader::space() {
  return frame_ ? payload_space() : std::span(buffer_).subspan(num_buffered_);
}

std::span<std::byte> FrameReader::payload_space() {
  const auto whole = static_cast<std::size_t>(frame_->header.num_bytes);
  const std::size_t wanted = std::min(whole, std::max(2 * num_payload_, kPayloadStep));
  const std::size_t num_lines = (wanted + kCacheLine - 1) / kCacheLine;
  if (frame_->memory.size() < num_lines) frame_->memory.resize(num_lines);
  return std::as_writable_bytes(std::span(frame_->memory)).first(wanted).subspan(num_payload_);
}

bool FrameReader::received(std::size_t num_bytes, const Handler& handler) {
  (frame_ ? num_payload_ : num_buffered_) += num_bytes;
  std::span<const std::byte> rest = std::span(buffer_).first(num_buffered_);
  for (;;) {
    if (frame_) {
      while (num_payload_ < frame_->header.num_bytes && !rest.empty()) {
        const std::span<std::byte> space = payload_space();
        const std::size_t count = std::min(space.size(), rest.size());
        std::memcpy(space.data(), rest.data(), count);
        rest = rest.subspan(count);
        num_payload_ += count;
      }
      if (num_payload_ < frame_->header.num_bytes) break;
      handler(*std::exchange(frame_, std::nullopt));
    }
    if (rest.size() < kFrameHeaderBytes) break;
    const auto header = decode(rest.first<kFrameHeaderBytes>());
    if (!header) return false;
    rest = rest.subspan(kFrameHeaderBytes);
    frame_.emplace(Frame{*header, {}});
    num_payload_ = 0;
    if (header->num_bytes == 0 || spare_.empty()) continue;
    frame_->memory = std::move(spare_.back());
    spare_.pop_back();
  }
  if (!rest.empty()) std::memmove(buffer_.data(), rest.data(), rest.size());
  num_buffered_ = rest.size();
  return true;
}

void FrameReader::recycle(Frame frame) {
  const bool is_of_a_plan = frame.memory.size() * kCacheLine <= kMaxMessageBytes;
  if (spare_.size() < kMaxSpare && is_of_a_plan) spare_.push_back(std::move(frame.memory));
}

std::uint64_t FrameWriter::add(FrameHeader header, std::span<const std::byte> payload) {
  header.num_bytes = payload.size();
  ++num_added_;
  if (!is_over_) frames_.push_back({encode(header), payload, {}, 0});
  return num_added_;
}

void FrameWriter::keep_unsent() {
  for (Outgoing& frame : frames_) {
    if (!frame.kept.empty() || frame.payload.empty()) continue;
    frame.kept.assign(frame.payload.begin(), frame.payload.end());
    frame.payload = frame.kept;
  }
}

void FrameWriter::flush(const Socket& socket) {
  while (!frames_.empty()) {
    Outgoing& frame = frames_.front();
    const std::size_t header_sent = std::min(frame.num_sent, kFrameHeaderBytes);
    const auto payload = frame.payload.subspan(frame.num_sent - header_sent);
    // The kernel only reads what it sends.
    std::array<iovec, 2> parts{
        iovec{frame.header.data() + header_sent, kFrameHeaderBytes - header_sent},
        iovec{const_cast<std::byte*>(payload.data()), payload.size()}};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t sent = sendmsg(socket.descriptor(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return;
    if (sent < 0) {
      is_over_ = true;
      frames_.clear();
      return;
    }
    frame.num_sent += static_cast<std::size_t>(sent);
    if (frame.num_sent == kFrameHeaderBytes + frame.payload.size()) frames_.pop_front();
  }
}

}  // namespace lockstep::comm
