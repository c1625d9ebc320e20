// Files that a command will write, looked at before it works for them.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::tools {

// Does nothing for an empty path. Throws Error{Io} that names the flag when a file could not be
// written there. --json may be "-", standard output; for other flags that is Error{Usage}.
void require_writable(std::string_view flag, const std::string& path);

}  // namespace lockstep::tools
