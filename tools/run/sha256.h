// SHA-256, by OpenSSL, of bytes that arrive in pieces.
#pragma once

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "engine/core/error.h"

namespace lockstep::tools {

class Sha256 {
 public:
  Sha256() { is_ok_ = context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1; }

  void add(std::span<const std::byte> bytes) {
    is_ok_ = is_ok_ && EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1;
  }

  // The digest of all bytes, in hexadecimal. Call it once, last. Throws Error{State} when OpenSSL
  // could not compute it.
  std::string finish() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned length = 0;
    is_ok_ = is_ok_ && EVP_DigestFinal_ex(context_.get(), digest.data(), &length) == 1;
    require(is_ok_, ErrorCode::State, "sha256", "OpenSSL cannot compute SHA-256");
    std::string text;
    for (unsigned i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_{EVP_MD_CTX_new(), EVP_MD_CTX_free};
  bool is_ok_ = false;
};

}  // namespace lockstep::tools
