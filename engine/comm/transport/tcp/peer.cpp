#include "engine/comm/transport/tcp/peer.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

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
    end("its connection closed: it was killed, or its host was cut off");
    return true;
  }
  if (*received > 0 && !inbox_.received(*received)) end("it sent bytes that are no frames");
  return *received > 0;
}

void Peer::end(const std::string& how) {
  has_ended_ = true;
  if (has_left_) return;
  group_.fail(Error(ErrorCode::Comm, "collective", fmt::format("rank {} is lost: {}", rank_, how)));
}

void Peer::handle(const FrameHeader& header, std::vector<std::byte> payload) {
  switch (header.kind) {
    case FrameKind::announce:
      group_.announced(rank_, header.call);
      return;
    case FrameKind::letter:
      letters_.push_back({header.call, std::move(payload)});
      return;
    case FrameKind::failure:
      group_.fail(failure_of(header, payload));
      return;
    case FrameKind::goodbye:
      has_left_ = true;
      return;
    case FrameKind::data:
      return;  // stays in the inbox
  }
}

std::vector<std::byte> failure_payload(const Error& error) {
  const std::string_view text = std::string_view(error.what()).substr(0, kMaxFailureBytes);
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// The words are "[operation] message".
Error failure_of(const FrameHeader& header, const std::vector<std::byte>& payload) {
  const std::string_view text(reinterpret_cast<const char*>(payload.data()), payload.size());
  const bool is_known = header.code <= static_cast<std::uint32_t>(ErrorCode::Numeric);
  const ErrorCode code = is_known ? static_cast<ErrorCode>(header.code) : ErrorCode::Comm;
  const std::size_t end = text.find("] ");
  if (!text.starts_with('[') || end == std::string_view::npos) return {code, "collective", text};
  return {code, text.substr(1, end - 1), text.substr(end + 2)};
}

}  // namespace lockstep::comm
