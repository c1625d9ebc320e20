#include "engine/comm/transport/shm/letters.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace lockstep::comm::shm {
namespace {

using arena::Channel;
using arena::MessageSlot;

constexpr auto kLetterUse = arena::Layout::Use::letter;

// The first piece of a letter begins with its call.
constexpr std::size_t kHeadBytes = sizeof(CallHeader);
static_assert(std::is_trivially_copyable_v<CallHeader>);

}  // namespace

Letters::Letters(const arena::Group& group)
    : group_(group),
      outboxes_(static_cast<std::size_t>(group.size())),
      num_released_(outboxes_.size()) {}

Letters::~Letters() {
  closing_deadline_ = runtime::deadline_after(closing_seconds_);
  is_closing_.store(true);
  outboxes_.clear();
}

std::size_t Letters::num_pieces(std::size_t num_bytes) const {
  const std::size_t slot = group_.layout().slot_bytes();
  return (kHeadBytes + num_bytes + slot - 1) / slot;
}

bool Letters::fits_now(int to, std::size_t pieces) const {
  const Outbox& outbox = outboxes_[static_cast<std::size_t>(to)];
  const Channel& channel = group_.channel(kLetterUse, group_.me(), to);
  const Ticket num_open =
      outbox.num_posted - channel.num_released.value.load(std::memory_order_seq_cst);
  return num_open + pieces <= kMaxOpenMessages;
}

void Letters::send(int to, const CallHeader& call, Bytes data) {
  Outbox& outbox = outboxes_[static_cast<std::size_t>(to)];
  if (outbox.is_idle() && fits_now(to, num_pieces(data.size()))) return push(to, call, data);
  if (outbox.worker == nullptr) outbox.worker = std::make_unique<runtime::Worker>("letters");
  outbox.worker->post([this, to, call, copy = std::vector<std::byte>(data.begin(), data.end())] {
    push(to, call, copy);
  });
}

bool Letters::wait_for_slot(int to, Ticket number) {
  if (number <= kMaxOpenMessages) return true;
  const std::atomic<Ticket>& released =
      group_.channel(kLetterUse, group_.me(), to).num_released.value;
  const auto is_free = [&] {
    return released.load(std::memory_order_seq_cst) + kMaxOpenMessages >= number;
  };
  Waited waited = Waited::timed_out;
  while (waited == Waited::timed_out) {
    if (is_closing_.load() && runtime::has_passed(closing_deadline_)) return false;
    waited = group_.wait(to, runtime::deadline_after(0.1), is_free);
  }
  return waited == Waited::done;
}

void Letters::push(int to, const CallHeader& call, Bytes data) {
  const std::size_t slot_bytes = group_.layout().slot_bytes();
  std::size_t head_bytes = kHeadBytes;
  do {
    const Ticket number = ++outboxes_[static_cast<std::size_t>(to)].num_posted;
    if (!wait_for_slot(to, number)) return;
    std::byte* const memory = group_.slot(kLetterUse, group_.me(), to, number);
    const std::size_t count = std::min(data.size(), slot_bytes - head_bytes);
    if (head_bytes > 0) std::memcpy(memory, &call, head_bytes);
    if (count > 0) std::memcpy(memory + head_bytes, data.data(), count);
    MessageSlot& slot =
        group_.channel(kLetterUse, group_.me(), to).slots[(number - 1) % kMaxOpenMessages];
    slot.num_bytes = head_bytes + count;
    slot.number.store(number, std::memory_order_seq_cst);
    group_.ring(to);
    data = data.subspan(count);
    head_bytes = 0;
  } while (!data.empty());
}

Waited Letters::read_head(int from, const runtime::Deadline& deadline, CallHeader& sent) {
  const Ticket number = num_released_[static_cast<std::size_t>(from)] + 1;
  const MessageSlot& slot =
      group_.channel(kLetterUse, from, group_.me()).slots[(number - 1) % kMaxOpenMessages];
  const Waited waited = group_.wait(
      from, deadline, [&] { return slot.number.load(std::memory_order_seq_cst) == number; });
  if (waited == Waited::done) {
    std::memcpy(&sent, group_.slot(kLetterUse, from, group_.me(), number), kHeadBytes);
  }
  return waited;
}

Waited Letters::read_body(int from, const runtime::Deadline& deadline, std::span<std::byte> data) {
  Channel& channel = group_.channel(kLetterUse, from, group_.me());
  Ticket& num_released = num_released_[static_cast<std::size_t>(from)];
  std::size_t head_bytes = kHeadBytes;
  do {
    const Ticket number = num_released + 1;
    const MessageSlot& slot = channel.slots[(number - 1) % kMaxOpenMessages];
    const Waited waited = group_.wait(
        from, deadline, [&] { return slot.number.load(std::memory_order_seq_cst) == number; });
    if (waited != Waited::done) return waited;
    const std::size_t count = std::min(slot.num_bytes - head_bytes, data.size());
    const std::byte* const memory = group_.slot(kLetterUse, from, group_.me(), number);
    if (count > 0) std::memcpy(data.data(), memory + head_bytes, count);
    data = data.subspan(count);
    head_bytes = 0;
    num_released = number;
    channel.num_released.value.store(number, std::memory_order_seq_cst);
    group_.ring(from);
  } while (!data.empty());
  return Waited::done;
}

}  // namespace lockstep::comm::shm
