#include "tools/grading/secret.h"

#include <openssl/evp.h>

#include <cstdint>
#include <cstring>

#include "engine/core/error.h"
#include "engine/core/files.h"

namespace lockstep::tools::grading {

std::string read_secret(const std::filesystem::path& folder) {
  std::string secret = read_text_file(folder / "secret", "--hidden");
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  require(secret.size() >= 16, ErrorCode::Usage, "--hidden",
          "expected a secret of at least 16 letters in {}, found {}", (folder / "secret").string(),
          secret.size());
  return secret;
}

Rng rng_of(const std::string& secret, const lab::Lab& lab, const lab::Check& check) {
  const std::string text = secret + '\0' + lab.folder + '\0' + check.name;
  unsigned char digest[EVP_MAX_MD_SIZE];
  const bool ok = EVP_Digest(text.data(), text.size(), digest, nullptr, EVP_sha256(), nullptr) == 1;
  require(ok, ErrorCode::State, "grade", "OpenSSL cannot compute SHA-256");
  std::uint64_t numbers[2];
  std::memcpy(numbers, digest, sizeof numbers);
  return Rng(numbers[0], numbers[1]);
}

}  // namespace lockstep::tools::grading
