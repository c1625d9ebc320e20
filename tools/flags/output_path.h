// Checks that a command's output files can be written before the command works for them, and treats
// failed writes to standard output as a failure of the command.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tools {

struct OutputPath {
  std::string_view flag;
  std::string path;  // empty: the flag was not given
};

// Throws Error{Io} that names the flag if a file could not be written, and Error{Usage} if two
// flags name one file, also through links or other spellings. --json may be "-", standard output;
// for other flags that is Error{Usage}.
void require_writable(const std::vector<OutputPath>& outputs);

// Under a limit on the size of files (ulimit -f), a write now fails with EFBIG instead of ending
// the process. Programs started from here get the signal back.
void survive_file_size_limit();

// Throws Error{Io} if any output so far was lost: a full disk, a closed stream.
void flush_standard_output();

}  // namespace lockstep::tools
