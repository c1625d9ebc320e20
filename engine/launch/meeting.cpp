#include "engine/launch/meeting.h"

#include <unistd.h>

#include <sstream>

#include "engine/core/error.h"
#include "engine/launch/job_token.h"

namespace lockstep::launch {
namespace {

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace

Environment with_init_method(Environment environment, const InitMethod& method) {
  if (method.kind == InitMethod::Kind::tcp) {
    environment["MASTER_ADDR"] = method.host;
    environment["MASTER_PORT"] = std::to_string(method.port);
    environment.erase("TORCHELASTIC_USE_AGENT_STORE");
  } else if (method.kind == InitMethod::Kind::file && !find_variable(environment, "MASTER_ADDR")) {
    environment["MASTER_ADDR"] = "localhost";
  }
  return environment;
}

Meeting decide_meeting(const Environment& environment, const RankEnvironment& rank,
                       const InitMethod& method) {
  Meeting meeting;
  const bool is_ipv6 = rank.master_address == "::1";
  const bool is_one_host = rank.hosts == Hosts::one;
  meeting.address.host =
      is_one_host ? (is_ipv6 ? "::1" : "127.0.0.1") : std::string(rank.master_address);
  meeting.address.port = rank.master_port;
  meeting.address.token = find_variable(environment, "LOCKSTEP_TOKEN").value_or("");
  if (method.kind == InitMethod::Kind::file) {
    meeting.in_file = Meeting::InFile::everything;
    meeting.file = method.path;
    meeting.address.port = 0;
    if (!is_one_host) meeting.address.host = host_name();
  } else if (meeting.address.token.empty()) {
    const auto file = find_variable(environment, "LOCKSTEP_TOKEN_FILE");
    require(file || is_one_host, ErrorCode::Usage, "LOCKSTEP_TOKEN",
            "this environment variable is missing: ranks on several hosts recognise each other by "
            "it; set it to the same secret on all of them, for example that of `openssl rand -hex "
            "32`");
    meeting.in_file = Meeting::InFile::token;
    meeting.file =
        file ? std::filesystem::path(*file) : default_token_file(environment, rank.master_port);
  }
  return meeting;
}

std::optional<Address> read_address(const Meeting& meeting) {
  if (meeting.in_file == Meeting::InFile::nothing) return meeting.address;
  const auto text = read_private_file(meeting.file);
  if (!text) return std::nullopt;
  Address address = meeting.address;
  if (meeting.in_file == Meeting::InFile::token) {
    address.token = *text;
    return address;
  }
  std::istringstream words(*text);
  words >> address.host >> address.port >> address.token;
  if (!words || address.port < 1 || address.port > 65535) return std::nullopt;
  return address;
}

}  // namespace lockstep::launch
