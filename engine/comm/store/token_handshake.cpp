#include "engine/comm/store/token_handshake.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "engine/core/error.h"

namespace lockstep::comm {
namespace {

constexpr std::array<std::byte, 8> kMagic{std::byte{'L'}, std::byte{'O'}, std::byte{'C'},
                                          std::byte{'K'}, std::byte{'S'}, std::byte{'T'},
                                          std::byte{'E'}, std::byte{1}};

Digest sign(std::string_view token, std::string_view purpose, std::string_view step,
            std::span<const std::byte> first, std::span<const std::byte> second) {
  std::vector<std::byte> text;
  const auto add = [&](std::span<const std::byte> part) {
    text.insert(text.end(), part.begin(), part.end());
  };
  add(std::as_bytes(std::span(purpose)));
  add(std::as_bytes(std::span(":", 1)));
  add(std::as_bytes(std::span(step)));
  add(std::as_bytes(std::span(":", 1)));
  add(first);
  add(second);
  return hmac_sha256(token, text);
}

template <std::size_t kSize>
std::array<std::byte, kSize> joined(std::span<const std::byte> first,
                                    std::span<const std::byte> second,
                                    std::span<const std::byte> third = {}) {
  std::array<std::byte, kSize> whole;
  auto end = std::ranges::copy(first, whole.begin()).out;
  end = std::ranges::copy(second, end).out;
  std::ranges::copy(third, end);
  return whole;
}

}  // namespace

Digest random_nonce() {
  Digest nonce;
  std::size_t num_bytes = 0;
  while (num_bytes < nonce.size()) {
    const ssize_t found = getrandom(nonce.data() + num_bytes, nonce.size() - num_bytes, 0);
    if (found < 0 && errno == EINTR) continue;
    require(found > 0, ErrorCode::Io, "handshake", "the system gives no random bytes: {}",
            std::strerror(errno));
    num_bytes += static_cast<std::size_t>(found);
  }
  return nonce;
}

std::string make_token() {
  std::string text;
  for (const std::byte byte : random_nonce()) {
    text += fmt::format("{:02x}", std::to_integer<int>(byte));
  }
  return text;
}

void require_token(std::string_view token, std::string_view what) {
  require(token.size() >= kMinTokenBytes && token.size() <= kMaxTokenBytes, ErrorCode::Usage, what,
          "a job's token has {} ... {} bytes, so that nobody guesses it, found {}; make one by "
          "`openssl rand -hex 32`",
          kMinTokenBytes, kMaxTokenBytes, token.size());
}

ClientHandshake::ClientHandshake(std::string token, std::string purpose)
    : token_(std::move(token)), purpose_(std::move(purpose)), nonce_(random_nonce()) {
  require_token(token_);
}

Hello ClientHandshake::hello() const {
  return joined<kHelloBytes>(kMagic, nonce_, sign(token_, purpose_, "hello", nonce_, {}));
}

std::optional<Digest> ClientHandshake::proof(const Answer& answer) const {
  const auto server_nonce = std::span(answer).first<32>();
  const Digest expected = sign(token_, purpose_, "server", nonce_, server_nonce);
  if (!equal_in_constant_time(expected, std::span(answer).last<32>())) return std::nullopt;
  return sign(token_, purpose_, "client", nonce_, server_nonce);
}

ServerHandshake::ServerHandshake(std::string token, std::string purpose)
    : token_(std::move(token)), purpose_(std::move(purpose)), nonce_(random_nonce()) {
  require_token(token_);
}

std::optional<Answer> ServerHandshake::answer(std::span<const std::byte, kHelloBytes> hello) {
  const auto nonce = hello.subspan<8, 32>();
  const Digest expected = sign(token_, purpose_, "hello", nonce, {});
  if (!std::ranges::equal(hello.first<8>(), kMagic) ||
      !equal_in_constant_time(expected, hello.last<32>())) {
    return std::nullopt;
  }
  std::ranges::copy(nonce, client_nonce_.begin());
  return joined<kAnswerBytes>(nonce_, sign(token_, purpose_, "server", client_nonce_, nonce_));
}

bool ServerHandshake::is_proven(std::span<const std::byte, kProofBytes> proof) const {
  return equal_in_constant_time(sign(token_, purpose_, "client", client_nonce_, nonce_), proof);
}

}  // namespace lockstep::comm
