// Files that a command will write, looked at before it works for them, and standard output as a
// result: what could not be written there is a failure of the command.
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

// Under a limit on the size of files (ulimit -f), a write fails with EFBIG from now on instead of
// ending the process. Programs that are started from here get the signal back.
void survive_file_size_limit();

// Throws Error{Io} when something printed so far did not get through: a full disk, a closed stream.
void flush_standard_output();

}  // namespace lockstep::tools
