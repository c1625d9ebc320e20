// Files that a command will write, looked at before it works for them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tools {

struct OutputPath {
  std::string_view flag;
  std::string path;  // empty: the flag was not given
};

// Throws Error{Io} that names the flag when a file could not be written there, and Error{Usage} for
// two flags with one file, be it by links or other spellings. --json may be "-", standard output;
// for other flags that is Error{Usage}.
void require_writable(const std::vector<OutputPath>& outputs);

}  // namespace lockstep::tools
