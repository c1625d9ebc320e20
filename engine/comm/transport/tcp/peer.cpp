#include "engine/comm/transport/tcp/peer.h"

#include "engine/comm/comm_errors.h"

namespace lockstep::comm {

Peer::Peer(int rank, Socket socket, GroupState& group)
    : rank_(rank),
      socket_(std::move(socket)),
      group_(group),
      inbox_([this](const FrameHeader& header, std::vector<std::byte> payload) {
        handle(header, std::move(payload));
      }) {}

bool Peer::receive() {
  if (has_ended_) return false;
  const auto received = receive_some(socket_, inbox_.space());
  if (!received) {
    end(lost_rank(rank_));
    return true;
  }
  if (*received > 0 && !inbox_.received(*received)) end(garbled_rank(rank_));
  return *received > 0;
}

void Peer::end(const Error& error) {
  has_ended_ = true;
  if (!has_left_) group_.failure().set(error);
}

void Peer::handle(const FrameHeader& header, std::vector<std::byte> payload) {
  switch (header.kind) {
    case FrameKind::announce:
      group_.announced(rank_).publish(header.call);
      return;
    case FrameKind::letter:
      letters_.push_back({header.call, std::move(payload)});
      return;
    case FrameKind::failure:
      group_.failure().set(
          decode_error({reinterpret_cast<const char*>(payload.data()), payload.size()}));
      return;
    case FrameKind::goodbye:
      has_left_ = true;
      return;
    case FrameKind::data:
      return;  // stays in the inbox
  }
}

}  // namespace lockstep::comm
