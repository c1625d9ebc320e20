#include "engine/comm/transport/tcp/inbox.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace lockstep::comm {
namespace {

constexpr std::size_t kSmallestWindow = 4096;
constexpr std::size_t kLargestWindow = 1024 * 1024;
// Payloads with memory of their own get it as their bytes arrive, in steps of this size.
constexpr std::size_t kPayloadStep = 4 * 1024 * 1024;

}  // namespace

std::span<std::byte> Inbox::space() {
  if (frame_) {
    const std::size_t whole = padded_bytes(frame_->num_bytes);
    if (num_payload_ == payload_.size()) {
      payload_.resize(std::min(whole, num_payload_ + std::max(kPayloadStep, num_payload_)));
    }
    return std::span(payload_).subspan(num_payload_);
  }
  const std::size_t missing =
      parsed_ > received_ ? static_cast<std::size_t>(parsed_ - received_) : 0;
  const std::size_t wanted = std::min(missing, kLargestWindow) + std::max(window_, kSmallestWindow);
  make_room(missing + kSmallestWindow);
  const std::size_t used = static_cast<std::size_t>(received_ - origin_);
  const std::size_t free = buffer_.size() * sizeof(Line) - used;
  return {at(received_), std::min(free, wanted)};
}

// A held message must stay where it is: then what follows it moves to a new buffer.
void Inbox::make_room(std::size_t num_bytes) {
  const std::size_t capacity = buffer_.size() * sizeof(Line);
  const auto end = static_cast<std::size_t>(received_ - origin_);
  if (capacity - end >= num_bytes) return;
  // The start of a line, also where only a part of what fills a payload up has come: what lies
  // behind it has to stay aligned.
  const std::uint64_t first =
      std::min(first_needed(), received_) / kFrameHeaderBytes * kFrameHeaderBytes;
  const auto num_kept = static_cast<std::size_t>(received_ - first);
  const std::size_t needed = num_kept + std::max(num_bytes, window_);
  if (!is_held_ && capacity >= needed) {
    std::memmove(buffer_.data(), at(first), num_kept);
  } else {
    std::vector<Line> larger((2 * needed + sizeof(Line) - 1) / sizeof(Line));
    if (num_kept > 0) std::memcpy(larger.data(), at(first), num_kept);
    buffer_.swap(larger);
    if (is_held_) retired_.push_back(std::move(larger));
  }
  origin_ = first;
}

bool Inbox::received(std::size_t num_bytes) {
  if (!frame_) {
    received_ += num_bytes;
    return parse();
  }
  num_payload_ += num_bytes;
  if (num_payload_ == padded_bytes(frame_->num_bytes)) finish_payload();
  return true;
}

bool Inbox::parse() {
  while (parsed_ + kFrameHeaderBytes <= received_) {
    const auto header =
        decode(std::span<const std::byte, kFrameHeaderBytes>(at(parsed_), kFrameHeaderBytes));
    if (!header) return false;
    parsed_ += kFrameHeaderBytes;
    start(*header);
  }
  return true;
}

void Inbox::start(const FrameHeader& header) {
  const std::size_t whole = padded_bytes(header.num_bytes);
  if (header.kind == FrameKind::data) {
    messages_.push_back({header, parsed_});
    parsed_ += whole;
    window_ = std::min(whole + kSmallestWindow, kLargestWindow);
    return;
  }
  if (whole == 0) {
    handler_(header, {});
    return;
  }
  // The part of the payload that came with the header moves to its own memory.
  frame_ = header;
  const std::size_t here = std::min(whole, static_cast<std::size_t>(received_ - parsed_));
  payload_.assign(at(parsed_), at(parsed_) + here);
  num_payload_ = here;
  parsed_ += here;
  if (here == whole) return finish_payload();
  // What follows in the buffer is aligned again.
  parsed_ = received_ = padded_bytes(parsed_);
}

void Inbox::finish_payload() {
  const FrameHeader header = *frame_;
  frame_.reset();
  payload_.resize(static_cast<std::size_t>(header.num_bytes));
  handler_(header, std::exchange(payload_, {}));
}

bool Inbox::is_complete() const {
  return !messages_.empty() && messages_[0].begin + messages_[0].header.num_bytes <= received_;
}

const std::byte* Inbox::hold() {
  is_held_ = true;
  return at(messages_[0].begin);
}

void Inbox::release() {
  is_held_ = false;
  retired_.clear();
  messages_.pop_front();
  if (first_needed() == received_) origin_ = received_;  // empty: begin at the front again
}

}  // namespace lockstep::comm
