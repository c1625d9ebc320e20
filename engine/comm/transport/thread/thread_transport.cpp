#include "engine/comm/transport/thread/thread_transport.h"

#include <algorithm>
#include <numeric>

namespace lockstep::comm {
namespace {

constexpr auto kOrder = std::memory_order_seq_cst;

std::vector<int> numbers_below(int world_size) {
  std::vector<int> ranks(static_cast<std::size_t>(world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

ThreadArena::ThreadArena(int world_size, Cores cores)
    : lines_(std::make_unique<CacheLine[]>(
          arena::Layout(world_size, arena::Messages::lent).num_bytes() / kCacheLine)),
      cores_(cores),
      mailboxes_(static_cast<std::size_t>(world_size) * static_cast<std::size_t>(world_size)),
      stagings_(static_cast<std::size_t>(world_size)),
      device_parts_(world_size) {}

ThreadTransport::ThreadTransport(std::shared_ptr<ThreadArena> arena, int rank)
    : ArenaTransport(arena, arena::Messages::lent, rank, numbers_below(arena->world_size()), 0),
      arena_(std::move(arena)),
      num_letters_(static_cast<std::size_t>(world_size())) {
  // Also where ranks outnumber cores: every spin yields, and costs less than a sleep.
  const bool has_own_core = arena_->cores() == ThreadArena::Cores::own;
  group_.set_num_spins(has_own_core ? runtime::kSpinRounds : runtime::kSpinRoundsOnSharedCore);
}

void ThreadTransport::begin_data() {
  mine().in_data.value.store(1, kOrder);
  if (!group_.has_failed()) return;
  mine().in_data.value.store(0, kOrder);
  group_.throw_if_failed();
}

void ThreadTransport::end_data() noexcept {
  mine().in_data.value.store(0, std::memory_order_release);
}

void ThreadTransport::abandon(const Error& error) noexcept {
  group_.fail(error);
  mine().in_data.value.store(0, kOrder);
  // Peers that are inside see the failure at their next wait, or are done.
  for (int peer = 0; peer < world_size(); ++peer) {
    const std::atomic<std::uint32_t>& in_data = group_.member(peer).in_data.value;
    for (unsigned round = 0; in_data.load(kOrder) != 0; ++round) runtime::poll_pause(round);
  }
}

Ticket ThreadTransport::post(int to, Bytes data) {
  const Ticket number = next_ticket(to);
  hand_over(to, number, data);
  return number;
}

std::byte* ThreadTransport::staging(std::size_t num_bytes) {
  return arena_->staging(rank()).next(num_bytes,
                                      [&](int to, Ticket ticket) { wait_sent(to, ticket); });
}

void ThreadTransport::posted_from_staging(int to, Ticket ticket) {
  arena_->staging(rank()).add_posted(to, ticket);
}

void ThreadTransport::finish_shared() {
  mine().finished_shared.value.store(call().sequence + 1, kOrder);
  group_.ring_all();
  for (int peer = 0; peer < world_size(); ++peer) {
    const std::atomic<std::uint64_t>& theirs = group_.member(peer).finished_shared.value;
    wait_for(peer, [&] { return theirs.load(kOrder) > call().sequence; });
  }
}

void ThreadTransport::put_letter(int to, Mailbox::Letter letter) {
  group_.throw_if_failed();
  Mailbox& mailbox = arena_->mailbox(rank(), to);
  {
    const std::lock_guard lock(mailbox.mutex);
    mailbox.letters.push_back(std::move(letter));
  }
  mailbox.num_posted.fetch_add(1, kOrder);
  group_.ring(to);
}

Mailbox::Letter ThreadTransport::take_letter(int from, const CallHeader& call,
                                             double timeout_seconds) {
  enter(call, timeout_seconds);
  Mailbox& mailbox = arena_->mailbox(from, rank());
  std::uint64_t& num_letters = num_letters_[static_cast<std::size_t>(from)];
  wait_for(from, [&] { return mailbox.num_posted.load(kOrder) > num_letters; });
  ++num_letters;
  const std::lock_guard lock(mailbox.mutex);
  Mailbox::Letter letter = std::move(mailbox.letters.front());
  mailbox.letters.pop_front();
  return letter;
}

void ThreadTransport::send_message(int to, const CallHeader& call, Bytes data) {
  put_letter(to, {call, {data.begin(), data.end()}, {}});
}

void ThreadTransport::receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                                      double timeout_seconds) {
  const Mailbox::Letter letter = take_letter(from, call, timeout_seconds);
  if (letter.call.dtype != call.dtype || letter.call.device != call.device ||
      letter.data.size() != data.size()) {
    fail_on_letter(from, letter.call);
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
    fail_on_letter(from, letter.call);
  }
  return std::move(letter.on_device);
}

}  // namespace lockstep::comm
