#include "engine/launch/meeting.h"

#include <unistd.h>

#include "engine/core/error.h"
#include "engine/launch/job_token.h"
#include "engine/launch/private_file.h"
#include "engine/launch/token_socket.h"

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
  meeting.address.token = find_token(environment).value_or("");
  if (method.kind == InitMethod::Kind::file) {
    meeting.through = Meeting::Through::file;
    meeting.file = method.path;
    meeting.address.port = 0;
    if (!is_one_host) meeting.address.host = host_name();
  } else if (meeting.address.token.empty()) {
    require(is_one_host || is_loopback(rank.master_address), ErrorCode::Usage, "LOCKSTEP_TOKEN",
            "this environment variable is missing: ranks on several hosts recognise each other by "
            "it; set it to the same secret on all of them, for example that of `openssl rand -hex "
            "32`, or LOCKSTEP_TOKEN_FILE to a file that holds it");
    meeting.through = Meeting::Through::token_socket;
  }
  return meeting;
}

std::optional<Address> find_address(const Meeting& meeting) {
  if (meeting.through == Meeting::Through::file) {
    const auto place = read_meeting_file(meeting.file);
    if (!place) return std::nullopt;
    return Address{place->host, place->port, place->token};
  }
  Address address = meeting.address;
  if (meeting.through == Meeting::Through::nothing) return address;
  const auto token = ask_for_token(address.port);
  if (!token) return std::nullopt;
  address.token = *token;
  return address;
}

}  // namespace lockstep::launch
