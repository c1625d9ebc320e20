// Where rank 0 serves the job's store, and how the other ranks learn it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "engine/launch/init_method.h"
#include "engine/launch/rank_environment.h"

namespace lockstep::launch {

// A door, and the token that opens it.
struct Address {
  std::string host;
  int port = 0;
  std::string token;
};

// How the address reaches the other ranks: all of it is known to everybody; or rank 0 hands out the
// token on this host (token_socket.h); or everything is in a file that rank 0 writes
// (private_file.h).
struct Meeting {
  Address address;  // what is known
  enum class Through { nothing, token_socket, file } through = Through::nothing;
  std::filesystem::path file;
};

// tcp:// replaces what the environment says about the meeting point; file:// needs none.
Environment with_init_method(Environment environment, const InitMethod& method);

// What the environment and the method say. Throws Error{Usage} when ranks on several hosts have no
// token to recognise each other by; what find_token does (job_token.h).
Meeting decide_meeting(const Environment& environment, const RankEnvironment& rank,
                       const InitMethod& method);

// The address, once it is known.
// Throws Error{Io} when the file is not private to this user; Error{Comm} when another user hands
// out tokens in place of rank 0.
std::optional<Address> find_address(const Meeting& meeting);

}  // namespace lockstep::launch
