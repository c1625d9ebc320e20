#include "tools/report/sha256.h"

#include <fmt/format.h>

#include <array>

#include "engine/core/error.h"

namespace lockstep::tools {

Sha256::Sha256()
    : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free),
      is_ok_(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1) {}

void Sha256::add(std::span<const std::byte> bytes) {
  is_ok_ = is_ok_ && EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1;
}

std::string Sha256::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  is_ok_ = is_ok_ && EVP_DigestFinal_ex(context_.get(), digest.data(), &length) == 1;
  require(is_ok_, ErrorCode::State, "sha256", "OpenSSL cannot compute SHA-256");
  std::string text;
  for (unsigned i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

}  // namespace lockstep::tools
