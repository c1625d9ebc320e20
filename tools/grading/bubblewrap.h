// A second wall around lab_host, where bubblewrap is installed: file systems, processes and
// networks of its own.
#pragma once

#include <string>
#include <vector>

namespace lockstep::tools::grading {

// Whether bwrap is there and works (some machines forbid what it needs), and the variable
// LOCKSTEP_BUBBLEWRAP is not "off". Asked once.
bool has_bubblewrap();

// The command as bwrap is to run it: it sees the system's programs, `readable`, and `folder`, which
// alone it may write to. REQUIRES: has_bubblewrap().
std::vector<std::string> inside_bubblewrap(const std::vector<std::string>& command,
                                           const std::string& folder,
                                           const std::vector<std::string>& readable);

}  // namespace lockstep::tools::grading
