#include "engine/comm/transport/tcp/frame.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace lockstep::comm {
std::span<std::byte> FrameReader::space() {
  return frame_ ? payload_space() : std::span(buffer_).subspan(num_buffered_);
}

// The place for the next bytes of the payload, whose memory grows as they arrive: a header alone
// takes none.
std::span<std::byte> FrameReader::payload_space() {
  constexpr std::size_t kStep = 4 * 1024 * 1024;
  const auto whole = static_cast<std::size_t>(frame_->header.num_bytes);
  const std::size_t wanted = std::min(whole, std::max(2 * num_payload_, kStep));
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
    FrameHeader header;
    if (rest.size() < sizeof header) break;
    std::memcpy(&header, rest.data(), sizeof header);
    if (!header.is_valid()) return false;
    rest = rest.subspan(sizeof header);
    frame_.emplace(Frame{header, {}});
    num_payload_ = 0;
    if (header.num_bytes == 0 || spare_.empty()) continue;
    frame_->memory = std::move(spare_.back());
    spare_.pop_back();
  }
  if (!rest.empty()) std::memmove(buffer_.data(), rest.data(), rest.size());
  num_buffered_ = rest.size();
  return true;
}

void FrameReader::recycle(Frame frame) {
  constexpr std::size_t kMaxSpare = 8;
  const bool is_of_a_plan = frame.memory.size() * kCacheLine <= kMaxMessageBytes;
  if (spare_.size() < kMaxSpare && is_of_a_plan) spare_.push_back(std::move(frame.memory));
}

std::uint64_t FrameWriter::add(FrameHeader header, std::span<const std::byte> payload) {
  header.num_bytes = payload.size();
  ++num_added_;
  if (!is_over_) frames_.push_back({header, payload, {}, 0});
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
    const auto header = std::as_writable_bytes(std::span(&frame.header, 1));
    const std::size_t header_sent = std::min(frame.num_sent, header.size());
    const auto payload = frame.payload.subspan(frame.num_sent - header_sent);
    // The kernel only reads what it sends.
    std::array<iovec, 2> parts{iovec{header.data() + header_sent, header.size() - header_sent},
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
    if (frame.num_sent == header.size() + frame.payload.size()) frames_.pop_front();
  }
}

}  // namespace lockstep::comm
