// How both ends of a connection prove that they hold the job's token, without sending it.
//
//   client -> server   hello   magic, nonce C, HMAC("hello", C)              72 bytes
//   server -> client   answer  nonce S, HMAC("server", C, S)                 64 bytes
//   client -> server   proof   HMAC("client", C, S)                          32 bytes
//
// The key of every HMAC is the token, and its text begins with the purpose ("store", "tcp"), so
// that no step of one handshake can be used in another. A server says nothing to a client whose
// hello is wrong; a recorded hello brings an answer, but no connection. What follows on the
// connection is neither encrypted nor signed: the token keeps jobs and users apart, on networks
// that are trusted not to alter traffic. Who can read the traffic can try tokens against a recorded
// hello at leisure, so a token that can be guessed is refused.
// Pure values: no sockets here.
#pragma once

#include <optional>
#include <string>

#include "engine/comm/store/sha256.h"

namespace lockstep::comm {

inline constexpr std::size_t kMinTokenBytes = 16;
inline constexpr std::size_t kMaxTokenBytes = 256;
inline constexpr std::size_t kHelloBytes = 72;
inline constexpr std::size_t kAnswerBytes = 64;
inline constexpr std::size_t kProofBytes = 32;

using Hello = std::array<std::byte, kHelloBytes>;
using Answer = std::array<std::byte, kAnswerBytes>;

// 32 bytes that nobody can guess. Throws Error{Io} when the system has none.
Digest random_nonce();

// 64 hexadecimal digits that nobody can guess. Throws as random_nonce does.
std::string make_token();

// Throws Error{Usage} unless the token has kMinTokenBytes ... kMaxTokenBytes bytes; `what` is named
// in the error.
void require_token(std::string_view token, std::string_view what = "handshake");

class ClientHandshake {
 public:
  ClientHandshake(std::string token, std::string purpose);
  Hello hello() const;
  // The proof; none when the server does not hold the token.
  std::optional<Digest> proof(const Answer& answer) const;

 private:
  std::string token_, purpose_;
  Digest nonce_;
};

class ServerHandshake {
 public:
  ServerHandshake(std::string token, std::string purpose);
  // The answer; none to a stranger.
  std::optional<Answer> answer(std::span<const std::byte, kHelloBytes> hello);
  // REQUIRES: answer() gave one.
  bool is_proven(std::span<const std::byte, kProofBytes> proof) const;

 private:
  std::string token_, purpose_;
  Digest client_nonce_{}, nonce_;
};

}  // namespace lockstep::comm
