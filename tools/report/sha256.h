// SHA-256, by OpenSSL, of bytes that arrive in pieces.
#pragma once

#include <openssl/evp.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace lockstep::tools {

class Sha256 {
 public:
  Sha256();

  void add(std::span<const std::byte> bytes);

  // The digest of all bytes, in hexadecimal. Call it once, last. Throws Error{State} when OpenSSL
  // could not compute it.
  std::string finish();

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
  bool is_ok_;
};

}  // namespace lockstep::tools
