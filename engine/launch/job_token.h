// The job's token: the secret that the ranks of one job share, and nobody else. Whoever wants to
// join must prove that it holds it, so two users with the same port never join each other's job.
//
// Where a rank gets it from:
//   LOCKSTEP_TOKEN         `lockstep run` makes one and passes it in the environment; for several
//                          hosts the user sets the same one on each
//   LOCKSTEP_TOKEN_FILE    a file of the user's that holds it; only read
//   neither, on one host   rank 0 makes one, and hands it to this user's processes
//                          (token_socket.h): no file, so nothing that could be left behind
#pragma once

#include <optional>
#include <string>

#include "engine/comm/store/hello.h"
#include "engine/launch/environment.h"

namespace lockstep::launch {

using comm::make_token;

// What the two variables say; none when neither is set.
// Throws Error{Usage} that names the variable when the token is shorter than 16 bytes or longer
// than 256; Error{Io} when there is no such file, or it is not private (private_file.h).
std::optional<std::string> find_token(const Environment& environment);

}  // namespace lockstep::launch
