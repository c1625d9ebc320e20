#include "engine/comm/transport/shm/shm_transport.h"

#include "engine/comm/transport/shm/streaming_copy.h"

namespace lockstep::comm {

using arena::Layout;
using arena::Messages;
using arena::Waited;

std::size_t ShmTransport::segment_bytes(int world_size) {
  return Layout(world_size, Messages::copied).num_bytes();
}

ShmTransport::ShmTransport(shm::SharedSegment segment, const ShmTransportOptions& options)
    : ArenaTransport(std::make_shared<shm::SharedSegment>(std::move(segment)), Messages::copied,
                     options.index, options.ranks, options.timeout_seconds),
      letters_(group_) {
  group_.meet(options.timeout_seconds, options.throw_if_hopeless);
}

std::size_t ShmTransport::pass_bytes() const {
  return static_cast<std::size_t>(world_size()) * max_message_bytes();
}

Ticket ShmTransport::post(int to, Bytes data) {
  const Ticket number = next_ticket(to);
  std::byte* const slot = group_.slot(Layout::Use::collective, rank(), to, number);
  shm::streaming_copy(slot, data);
  hand_over(to, number, {slot, data.size()});
  return number;
}

std::byte* ShmTransport::staging(std::size_t num_bytes) {
  if (staging_.size() < num_bytes) staging_.resize(num_bytes);
  return staging_.data();
}

void ShmTransport::send_message(int to, const CallHeader& call, Bytes data) {
  group_.throw_if_failed();
  letters_.limit_closing(timeout_seconds());
  letters_.send(to, call, data);
}

void ShmTransport::receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                                   double timeout_seconds) {
  enter(call, timeout_seconds);
  const runtime::Deadline deadline = runtime::deadline_after(timeout_seconds);
  CallHeader sent;
  Waited waited = letters_.read_head(from, deadline, sent);
  if (waited == Waited::done) {
    if (sent.dtype != call.dtype || sent.num_elements != call.num_elements) {
      fail_on_letter(from, sent);
    }
    waited = letters_.read_body(from, deadline, data);
  }
  if (waited != Waited::done) fail_waiting(from, waited);
}

}  // namespace lockstep::comm
