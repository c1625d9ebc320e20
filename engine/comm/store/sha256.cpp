#include "engine/comm/store/sha256.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "engine/core/error.h"

namespace lockstep::comm {
namespace {

unsigned char* bytes_of(Digest& digest) {
  return reinterpret_cast<unsigned char*>(digest.data());
}

}  // namespace

Digest sha256(std::span<const std::byte> data) {
  Digest digest;
  const int done =
      EVP_Digest(data.data(), data.size(), bytes_of(digest), nullptr, EVP_sha256(), nullptr);
  require(done == 1, ErrorCode::State, "sha256", "failed in OpenSSL");
  return digest;
}

Digest hmac_sha256(std::string_view key, std::span<const std::byte> data) {
  Digest digest;
  const unsigned char* done = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                                   reinterpret_cast<const unsigned char*>(data.data()), data.size(),
                                   bytes_of(digest), nullptr);
  require(done != nullptr, ErrorCode::State, "hmac_sha256", "failed in OpenSSL");
  return digest;
}

bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace lockstep::comm
