#include "tools/report/weights_digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <memory>

#include "engine/core/error.h"

namespace lockstep::tools {

std::string weights_digest(const nn::StateDict& weights) {
  nn::StateDict sorted = weights;
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  bool ok = context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  for (const auto& [name, tensor] : sorted) {
    const Tensor host = tensor.to(Device{});
    ok = ok && EVP_DigestUpdate(context.get(), host.raw(), host.num_bytes()) == 1;
  }
  ok = ok && EVP_DigestFinal_ex(context.get(), digest, &length) == 1;
  require(ok, ErrorCode::State, "weights", "SHA-256 failed in OpenSSL");
  std::string text;
  for (unsigned i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

}  // namespace lockstep::tools
