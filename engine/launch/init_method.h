// How ranks are told where to meet, in the words that torch.distributed's init_process_group uses.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::launch {

struct InitMethod {
  enum class Kind {
    env,   // env://             MASTER_ADDR and MASTER_PORT, see rank_environment.h
    tcp,   // tcp://host:port    rank 0 serves there; tcp://[::1]:29500 for an IPv6 address
    file,  // file:///path       rank 0 takes a free port and writes it to this file
  };
  Kind kind = Kind::env;
  std::string host;
  int port = 0;
  std::string path;
};

// Throws Error{Usage} that says what is allowed.
InitMethod parse_init_method(std::string_view text);

// "host:29500", "[::1]:29500"; host alone: port stays default_port. `what` is named in the error.
// Throws Error{Usage}.
struct Endpoint {
  std::string host;
  int port = 0;
};
Endpoint parse_endpoint(std::string_view what, std::string_view text, int default_port);

}  // namespace lockstep::launch
