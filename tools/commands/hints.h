// The engine's advice in the words of the command line: the library knows no flags.
#pragma once

#include <string>

namespace lockstep::tools {

// An error's message, in which each piece of advice names the flag that follows it.
std::string with_flags(std::string message);

}  // namespace lockstep::tools
