#include "engine/comm/transport/arena/arena_transport.h"

namespace lockstep::comm {
namespace {

using arena::Waited;

constexpr auto kOrder = std::memory_order_seq_cst;
constexpr auto kUse = arena::Layout::Use::collective;

std::size_t turn_of(Ticket number) {
  return (number - 1) % kMaxOpenMessages;
}

}  // namespace

ArenaTransport::ArenaTransport(std::shared_ptr<arena::Arena> arena, arena::Messages messages,
                               int index, std::vector<int> ranks, double timeout_seconds)
    : group_(std::move(arena), messages, index, std::move(ranks)),
      timeout_seconds_(timeout_seconds),
      num_posted_(static_cast<std::size_t>(world_size())),
      num_released_(num_posted_.size()) {}

void ArenaTransport::fail_waiting(int peer, Waited waited) {
  const RankWait wait = wait_of(peer);
  fail_and_throw(waited == Waited::timed_out ? late(peer)
                 : waited == Waited::died    ? wait.died(group_.member(peer).process)
                                             : wait.left());
}

Error ArenaTransport::late(int peer) const {
  RankWait wait = wait_of(peer);
  if (call_.operation == Operation::recv) return wait.late("");
  const arena::Group::Last last = group_.last_waited_for(peer);
  wait.peer = last.rank;
  if (last.where == arena::Group::Last::Where::elsewhere) return wait.late_on_another_host();
  return wait.late(group_.describe_missing(call_.sequence));
}

void ArenaTransport::enter(const CallHeader& call, double timeout_seconds) {
  group_.throw_if_failed();
  call_ = call;
  timeout_seconds_ = timeout_seconds;
}

void ArenaTransport::announce(const CallHeader& call, double timeout_seconds) {
  enter(call, timeout_seconds);
  group_.member(rank()).announced.publish(call);
  group_.ring_all();
}

CallHeader ArenaTransport::announced_by(int peer) {
  const Announcements& theirs = group_.member(peer).announced;
  wait_for(peer, [&] { return theirs.has_reached(call_.sequence); });
  return theirs.call(call_.sequence);
}

Ticket ArenaTransport::next_ticket(int to) {
  const Ticket number = ++num_posted_[static_cast<std::size_t>(to)];
  if (number > kMaxOpenMessages) wait_released(to, number - kMaxOpenMessages);
  return number;
}

void ArenaTransport::hand_over(int to, Ticket number, Bytes data) {
  arena::MessageSlot& slot = group_.channel(kUse, rank(), to).slots[turn_of(number)];
  slot.place = group_.place_of(data.data());
  slot.num_bytes = data.size();
  slot.number.store(number, kOrder);
  group_.ring(to);
}

void ArenaTransport::wait_released(int to, Ticket number) {
  const std::atomic<Ticket>& released = group_.channel(kUse, rank(), to).num_released.value;
  wait_for(to, [&] { return released.load(kOrder) >= number; });
}

const std::byte* ArenaTransport::take(int from, std::size_t num_bytes) {
  const Ticket number = num_released_[static_cast<std::size_t>(from)] + 1;
  const arena::MessageSlot& slot = group_.channel(kUse, from, rank()).slots[turn_of(number)];
  wait_for(from, [&] { return slot.number.load(kOrder) == number; });
  if (slot.num_bytes != num_bytes) {
    fail_and_throw(wait_of(from).found_bytes(num_bytes, slot.num_bytes));
  }
  return group_.at(slot.place);
}

void ArenaTransport::release(int from) {
  const Ticket number = ++num_released_[static_cast<std::size_t>(from)];
  group_.channel(kUse, from, rank()).num_released.value.store(number, kOrder);
  group_.ring(from);
}

void ArenaTransport::fail_on_letter(int from, const CallHeader& sent) {
  fail_and_throw(
      Error(ErrorCode::Comm, name_of(call_.operation),
            describe_difference(group_.name_of(rank()), call_, group_.name_of(from), sent)));
}

}  // namespace lockstep::comm
