#include "engine/comm/transport/thread/thread_transport.h"

#include <algorithm>

namespace lockstep::comm {
namespace {

constexpr auto kMessageOrder = std::memory_order_seq_cst;

}  // namespace

ThreadTransport::ThreadTransport(std::shared_ptr<Hub> hub, int rank)
    : hub_(std::move(hub)),
      rank_(rank),
      num_posted_(static_cast<std::size_t>(hub_->world_size())),
      num_released_(num_posted_.size()),
      num_letters_(num_posted_.size()) {}

ThreadTransport::~ThreadTransport() {
  mine().has_left.value.store(1, kMessageOrder);
  hub_->ring_all();
}

template <typename Done>
void ThreadTransport::wait_for(int peer, const Done& done) {
  if (!runtime::spin_until(done, hub_->num_spins())) sleep_until(peer, done);
}

template <typename Done>
void ThreadTransport::sleep_until(int peer, const Done& done) {
  const runtime::Deadline deadline = runtime::deadline_after(timeout_seconds_);
  while (true) {
    mine().is_sleeping.value.store(1, kMessageOrder);
    const std::uint32_t seen = mine().doorbell.load();
    const bool is_done = done();
    if (!is_done && !hub_->failure().is_set() &&
        hub_->rank(peer).has_left.value.load(kMessageOrder) == 0) {
      const bool in_time = mine().doorbell.wait_while_equal(seen, deadline);
      mine().is_sleeping.value.store(0, kMessageOrder);
      if (!in_time && !done()) {
        fail_and_throw(wait_of(peer).late(hub_->describe_missing(call_.sequence)));
      }
      continue;
    }
    mine().is_sleeping.value.store(0, kMessageOrder);
    if (is_done || done()) return;
    fail_and_throw(wait_of(peer).left());
  }
}

void ThreadTransport::announce(const CallHeader& call, double timeout_seconds) {
  hub_->failure().throw_if_set();
  call_ = call;
  timeout_seconds_ = timeout_seconds;
  mine().announced.publish(call);
  ring_others();
}

void ThreadTransport::ring_others() {
  for (int peer = 0; peer < world_size(); ++peer) hub_->ring(peer);
}

CallHeader ThreadTransport::announced_by(int peer) {
  const Announcements& theirs = hub_->rank(peer).announced;
  wait_for(peer, [&] { return theirs.has_reached(call_.sequence); });
  return theirs.call(call_.sequence);
}

void ThreadTransport::begin_data() {
  mine().in_data.value.store(1, kMessageOrder);
  if (!hub_->failure().is_set()) return;
  mine().in_data.value.store(0, kMessageOrder);
  hub_->failure().throw_if_set();
}

void ThreadTransport::end_data() noexcept {
  mine().in_data.value.store(0, std::memory_order_release);
}

void ThreadTransport::abandon(const Error& error) noexcept {
  hub_->fail(error);
  mine().in_data.value.store(0, kMessageOrder);
  // Peers that are inside see the failure at their next wait, or are done.
  for (int peer = 0; peer < world_size(); ++peer) {
    const std::atomic<std::uint32_t>& in_data = hub_->rank(peer).in_data.value;
    for (unsigned round = 0; in_data.load(kMessageOrder) != 0; ++round) runtime::poll_pause(round);
  }
}

Ticket ThreadTransport::post(int to, Bytes data) {
  const Ticket number = ++num_posted_[static_cast<std::size_t>(to)];
  if (number > kMaxOpenMessages) wait_sent(to, number - kMaxOpenMessages);
  MessageSlot& slot = hub_->channel(rank_, to).slots[(number - 1) % kMaxOpenMessages];
  slot.data = data.data();
  slot.num_bytes = data.size();
  slot.number.store(number, kMessageOrder);
  hub_->ring(to);
  return number;
}

void ThreadTransport::wait_sent(int to, Ticket ticket) {
  const std::atomic<Ticket>& released = hub_->channel(rank_, to).num_released.value;
  wait_for(to, [&] { return released.load(kMessageOrder) >= ticket; });
}

const std::byte* ThreadTransport::take(int from, std::size_t num_bytes) {
  const Ticket number = num_released_[static_cast<std::size_t>(from)] + 1;
  const MessageSlot& slot = hub_->channel(from, rank_).slots[(number - 1) % kMaxOpenMessages];
  wait_for(from, [&] { return slot.number.load(kMessageOrder) == number; });
  if (slot.num_bytes != num_bytes) {
    fail_and_throw(wait_of(from).found_bytes(num_bytes, slot.num_bytes));
  }
  return slot.data;
}

void ThreadTransport::release(int from) {
  const Ticket number = ++num_released_[static_cast<std::size_t>(from)];
  hub_->channel(from, rank_).num_released.value.store(number, kMessageOrder);
  hub_->ring(from);
}

std::byte* ThreadTransport::staging(std::size_t num_bytes) {
  return mine().staging.next(num_bytes, [&](int to, Ticket ticket) { wait_sent(to, ticket); });
}

void ThreadTransport::posted_from_staging(int to, Ticket ticket) {
  mine().staging.add_posted(to, ticket);
}

void ThreadTransport::finish_shared() {
  mine().finished_shared.value.store(call_.sequence + 1, kMessageOrder);
  ring_others();
  for (int peer = 0; peer < world_size(); ++peer) {
    const std::atomic<std::uint64_t>& theirs = hub_->rank(peer).finished_shared.value;
    wait_for(peer, [&] { return theirs.load(kMessageOrder) > call_.sequence; });
  }
}

void ThreadTransport::put_letter(int to, Mailbox::Letter letter) {
  hub_->failure().throw_if_set();
  Mailbox& mailbox = hub_->mailbox(rank_, to);
  {
    const std::lock_guard lock(mailbox.mutex);
    mailbox.letters.push_back(std::move(letter));
  }
  mailbox.num_posted.fetch_add(1, kMessageOrder);
  hub_->ring(to);
}

Mailbox::Letter ThreadTransport::take_letter(int from, const CallHeader& call,
                                             double timeout_seconds) {
  hub_->failure().throw_if_set();
  call_ = call;
  timeout_seconds_ = timeout_seconds;
  Mailbox& mailbox = hub_->mailbox(from, rank_);
  std::uint64_t& num_letters = num_letters_[static_cast<std::size_t>(from)];
  wait_for(from, [&] { return mailbox.num_posted.load(kMessageOrder) > num_letters; });
  ++num_letters;
  const std::lock_guard lock(mailbox.mutex);
  Mailbox::Letter letter = std::move(mailbox.letters.front());
  mailbox.letters.pop_front();
  return letter;
}

void ThreadTransport::fail_on_letter(int from, const CallHeader& expected,
                                     const CallHeader& found) {
  fail_and_throw(Error(ErrorCode::Comm, name_of(expected.operation),
                       describe_difference(rank_, expected, from, found)));
}

void ThreadTransport::send_message(int to, const CallHeader& call, Bytes data) {
  put_letter(to, {call, {data.begin(), data.end()}, {}});
}

void ThreadTransport::receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                                      double timeout_seconds) {
  const Mailbox::Letter letter = take_letter(from, call, timeout_seconds);
  if (letter.call.dtype != call.dtype || letter.call.device != call.device ||
      letter.data.size() != data.size()) {
    fail_on_letter(from, call, letter.call);
  }
  std::ranges::copy(letter.data, data.begin());
}

void ThreadTransport::send_on_device(int to, const CallHeader& call, DeviceLetter letter) {
  put_letter(to, {call, {}, std::move(letter)});
}

DeviceLetter ThreadTransport::receive_on_device(int from, const CallHeader& call,
                                                double timeout_seconds) {
  Mailbox::Letter letter = take_letter(from, call, timeout_seconds);
  if (letter.call.dtype != call.dtype || letter.call.device != call.device ||
      letter.call.num_elements != call.num_elements) {
    fail_on_letter(from, call, letter.call);
  }
  return std::move(letter.on_device);
}

}  // namespace lockstep::comm
