// What the flags of `lockstep run` ask for, checked.
#pragma once

#include "engine/launch/launcher.h"
#include "tools/commands.h"
#include "tools/run/run_flags.h"

namespace lockstep::tools {

// command: the program that is to run. Without what is made when the group starts: its port under
// --standalone, its token, its folder for logs.
// Throws Error{Usage} that names the flag; Error{Device} for one rank per CUDA device where this
// program sees none.
launch::LaunchOptions group_options(const RunFlags& flags, const CommandLine& command);

}  // namespace lockstep::tools
