// Random command lines of `lockstep`: right ones, wrong ones, and those in between.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::testing {

// The words after the program's name, which depend on the seed and on what `lockstep COMMAND
// --help` says. Where a flag decides how long a command works, it has small values only, or none at
// all.
std::vector<std::string> random_command_line(std::uint64_t seed);

// For messages: as one would type it in a shell.
std::string shell_line(const std::vector<std::string>& words);

}  // namespace lockstep::testing
