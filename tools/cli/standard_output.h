// Standard output as a result: what could not be written there is a failure of the command.
#pragma once

namespace lockstep::tools {

// Under a limit on the size of files (ulimit -f), a write fails with EFBIG from now on instead of
// ending the process. Programs that are started from here get the signal back.
void survive_file_size_limit();

// Throws Error{Io} when something printed so far did not get through: a full disk, a closed stream.
void flush_standard_output();

}  // namespace lockstep::tools
