#include "engine/comm/transport/shm/shm_transport.h"

#include "engine/comm/transport/shm/streaming_copy.h"

namespace lockstep::comm {
namespace {

using shm::Layout;
using shm::Waited;

constexpr auto kOrder = std::memory_order_seq_cst;
constexpr auto kUse = Layout::Use::collective;

}  // namespace

std::size_t ShmTransport::segment_bytes(int world_size) {
  return Layout(world_size).num_bytes();
}

ShmTransport::ShmTransport(shm::SharedSegment segment, const ShmTransportOptions& options)
    : group_(std::move(segment), options.index, options.ranks),
      letters_(group_),
      timeout_seconds_(options.timeout_seconds),
      num_posted_(options.ranks.size()),
      num_released_(options.ranks.size()) {
  group_.meet(options.timeout_seconds, options.throw_if_hopeless);
}

ShmTransport::~ShmTransport() = default;

template <typename Done>
void ShmTransport::wait_for(int peer, const Done& done) {
  if (done()) return;
  const Waited waited = group_.wait(peer, runtime::deadline_after(timeout_seconds_), done);
  if (waited != Waited::done) fail_waiting(peer, waited);
}

void ShmTransport::fail_waiting(int peer, Waited waited) {
  const RankWait wait = wait_of(peer);
  fail_and_throw(waited == Waited::timed_out ? late(peer)
                 : waited == Waited::died    ? wait.died(group_.member(peer).process)
                                             : wait.left());
}

Error ShmTransport::late(int peer) const {
  RankWait wait = wait_of(peer);
  if (call_.operation == Operation::recv) return wait.late("");
  const shm::Group::Last last = group_.last_waited_for(peer);
  wait.peer = last.rank;
  if (last.where == shm::Group::Last::Where::elsewhere) return wait.late_on_another_host();
  return wait.late(group_.describe_missing(call_.sequence));
}

void ShmTransport::announce(const CallHeader& call, double timeout_seconds) {
  group_.throw_if_failed();
  call_ = call;
  timeout_seconds_ = timeout_seconds;
  group_.member(rank()).announced.publish(call);
  group_.ring_all();
}

CallHeader ShmTransport::announced_by(int peer) {
  const Announcements& theirs = group_.member(peer).announced;
  wait_for(peer, [&] { return theirs.has_reached(call_.sequence); });
  return theirs.call(call_.sequence);
}

std::size_t ShmTransport::pass_bytes() const {
  return static_cast<std::size_t>(world_size()) * max_message_bytes();
}

Ticket ShmTransport::post(int to, Bytes data) {
  const Ticket number = ++num_posted_[static_cast<std::size_t>(to)];
  shm::Channel& channel = group_.channel(kUse, rank(), to);
  const std::atomic<Ticket>& released = channel.num_released.value;
  wait_for(to, [&] { return released.load(kOrder) + kMaxOpenMessages >= number; });
  shm::streaming_copy(group_.slot(kUse, rank(), to, number), data);
  shm::MessageSlot& slot = channel.slots[(number - 1) % kMaxOpenMessages];
  slot.num_bytes = data.size();
  slot.number.store(number, kOrder);
  group_.ring(to);
  return number;
}

const std::byte* ShmTransport::take(int from, std::size_t num_bytes) {
  const Ticket number = num_released_[static_cast<std::size_t>(from)] + 1;
  const shm::MessageSlot& slot =
      group_.channel(kUse, from, rank()).slots[(number - 1) % kMaxOpenMessages];
  wait_for(from, [&] { return slot.number.load(kOrder) == number; });
  if (slot.num_bytes != num_bytes) {
    fail_and_throw(wait_of(from).found_bytes(num_bytes, slot.num_bytes));
  }
  return group_.slot(kUse, from, rank(), number);
}

void ShmTransport::release(int from) {
  const Ticket number = ++num_released_[static_cast<std::size_t>(from)];
  group_.channel(kUse, from, rank()).num_released.value.store(number, kOrder);
  group_.ring(from);
}

std::byte* ShmTransport::staging(std::size_t num_bytes) {
  if (staging_.size() < num_bytes) staging_.resize(num_bytes);
  return staging_.data();
}

void ShmTransport::send_message(int to, const CallHeader& call, Bytes data) {
  group_.throw_if_failed();
  letters_.limit_closing(timeout_seconds_);
  letters_.send(to, call, data);
}

void ShmTransport::receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                                   double timeout_seconds) {
  group_.throw_if_failed();
  call_ = call;
  timeout_seconds_ = timeout_seconds;
  const runtime::Deadline deadline = runtime::deadline_after(timeout_seconds);
  CallHeader sent;
  Waited waited = letters_.read_head(from, deadline, sent);
  if (waited == Waited::done) {
    if (sent.dtype != call.dtype || sent.num_elements != call.num_elements) {
      fail_and_throw(
          Error(ErrorCode::Comm, name_of(call.operation),
                describe_difference(group_.name_of(rank()), call, group_.name_of(from), sent)));
    }
    waited = letters_.read_body(from, deadline, data);
  }
  if (waited != Waited::done) fail_waiting(from, waited);
}

}  // namespace lockstep::comm
