#include "engine/launch/job_token.h"

#include "engine/core/error.h"
#include "engine/launch/private_file.h"

namespace lockstep::launch {

std::optional<std::string> find_token(const Environment& environment) {
  constexpr const char* kToken = "LOCKSTEP_TOKEN";
  constexpr const char* kFile = "LOCKSTEP_TOKEN_FILE";
  if (auto token = find_variable(environment, kToken)) {
    comm::require_token(*token, kToken);
    return token;
  }
  const auto path = find_variable(environment, kFile);
  if (!path) return std::nullopt;
  auto token = read_private_file(*path);
  require(token.has_value(), ErrorCode::Io, kFile,
          "there is no file {}; put a token there (openssl rand -hex 32), which it only reads",
          *path);
  token->erase(token->find_last_not_of(" \t\r\n") + 1);
  comm::require_token(*token, kFile);
  return token;
}

}  // namespace lockstep::launch
