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

// How the address reaches the other ranks: all of it is known to everybody (no file), or the token
// is in a file that rank 0 writes, or everything is.
struct Meeting {
  Address address;  // what is known
  enum class InFile { nothing, token, everything } in_file = InFile::nothing;
  std::filesystem::path file;
};

// tcp:// replaces what the environment says about the meeting point; file:// needs none.
Environment with_init_method(Environment environment, const InitMethod& method);

// What the environment and the method say. Throws Error{Usage} when ranks on several hosts have no
// token to recognise each other by.
Meeting decide_meeting(const Environment& environment, const RankEnvironment& rank,
                       const InitMethod& method);

// The address as far as it is known now; none while the file is missing, or half of an address.
// Throws Error{Io} when the file is not private to this user (job_token.h).
std::optional<Address> read_address(const Meeting& meeting);

}  // namespace lockstep::launch
