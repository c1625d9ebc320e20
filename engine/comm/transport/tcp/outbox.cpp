#include "engine/comm/transport/tcp/outbox.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

namespace lockstep::comm {
namespace {

constexpr std::size_t kZeroBytes = 65536;
constexpr std::array<std::byte, kZeroBytes> kZeros{};

// The parts of a frame from some byte on.
class Parts {
 public:
  explicit Parts(std::size_t num_skipped) : num_skipped_(num_skipped) {}
  void add(const std::byte* data, std::size_t num_bytes) {
    const std::size_t skipped = std::min(num_skipped_, num_bytes);
    num_skipped_ -= skipped;
    if (skipped == num_bytes) return;
    // The kernel reads what it sends.
    parts_[count_++] = {const_cast<std::byte*>(data) + skipped, num_bytes - skipped};
  }
  void add_zeros(std::size_t num_bytes) {
    const std::size_t skipped = std::min(num_skipped_, num_bytes);
    num_skipped_ -= skipped;
    if (num_bytes > skipped) add(kZeros.data(), std::min(num_bytes - skipped, kZeroBytes));
  }
  msghdr message() {
    msghdr message{};
    message.msg_iov = parts_.data();
    message.msg_iovlen = count_;
    return message;
  }

 private:
  std::array<iovec, 3> parts_{};
  std::size_t count_ = 0;
  std::size_t num_skipped_;
};

}  // namespace

void Outbox::add(Frame frame) {
  if (is_over_) {
    if (frame.is_borrowed) ++num_sent_;
    return;
  }
  frames_.push_back(std::move(frame));
}

void Outbox::borrow(const FrameHeader& header, std::span<const std::byte> payload) {
  ++num_borrowed_;
  add({encode(header), payload.data(), payload.size(), {}, true, 0});
}

void Outbox::own(const FrameHeader& header, std::vector<std::byte> payload) {
  Frame frame{encode(header), nullptr, payload.size(), std::move(payload), false, 0};
  frame.data = frame.owned.data();
  add(std::move(frame));
}

void Outbox::keep_last() {
  if (frames_.empty() || !frames_.back().is_borrowed) return;
  Frame& frame = frames_.back();
  frame.owned.assign(frame.data, frame.data + frame.num_bytes);
  frame.data = frame.owned.data();
  frame.is_borrowed = false;
  ++num_sent_;
}

void Outbox::drop_front() {
  if (frames_.front().is_borrowed) ++num_sent_;
  frames_.pop_front();
}

bool Outbox::flush(const Socket& socket) {
  while (!frames_.empty()) {
    Frame& frame = frames_.front();
    Parts parts(frame.num_sent);
    parts.add(frame.header.data(), frame.header.size());
    if (frame.data != nullptr) {
      parts.add(frame.data, frame.num_bytes);
      parts.add_zeros(padded_bytes(frame.num_bytes) - frame.num_bytes);
    } else {
      parts.add_zeros(padded_bytes(frame.num_bytes));
    }
    const msghdr message = parts.message();
    const ssize_t sent = sendmsg(socket.descriptor(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return true;
    if (sent < 0) {
      close();
      return false;
    }
    frame.num_sent += static_cast<std::size_t>(sent);
    if (frame.num_sent < frame.num_all_bytes()) continue;
    drop_front();
  }
  return true;
}

void Outbox::close() {
  while (!frames_.empty()) drop_front();
  is_over_ = true;
}

void Outbox::forget_borrowed() {
  for (Frame& frame : frames_) {
    if (!frame.is_borrowed) continue;
    frame.is_borrowed = false;
    frame.data = nullptr;
    ++num_sent_;
  }
  std::erase_if(frames_, [](const Frame& frame) {
    return frame.data == nullptr && frame.num_bytes > 0 && frame.num_sent == 0;
  });
}

}  // namespace lockstep::comm
