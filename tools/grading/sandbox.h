// Finds the grader's files, in a build folder or installed, and runs a program that may do
// anything: with a time limit, with resource limits (prlimit), and, if bubblewrap is installed and
// works, with its own files, processes and networks.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "tools/run/processes.h"
#include "tutorials/labs/judging/lab.h"

namespace lockstep::tools::grading {

struct Places {
  std::filesystem::path host;     // the program lab_host
  std::filesystem::path modules;  // the folder with lab_NN_name.so
  std::filesystem::path labs;     // the folder with lab.h and NN_name/
  std::filesystem::path headers;  // the engine's, to be included as "engine/..."
  std::string compiler;           // its path
};

// The compiler is the one in the variable CXX, else the one that built this program, else c++.
// Throws Error{Io} that says what is missing, and how to get it.
Places find_places();

// "exited with code 3", "crashed: Segmentation fault", "was stopped: ...".
std::string describe(const ChildEnd& end, const ChildLimits& limits);

// Returns "limits" and, if it works, "bubblewrap". Throws Error{Io} if a sandboxed program could
// not read the files that the grader gives it.
std::vector<std::string> find_sandbox(const Places& places);

// One submission's scratch folder: its source is compiled there, and its checks run there. The
// submission's own folder is never written to, and nothing in it is run.
class Workshop {
 public:
  Workshop(const Places& places, const lab::Lab& lab);

  // Compiles only the source; the lab's header is the grader's. Returns what is wrong with it, or
  // an empty text.
  std::string build(const std::filesystem::path& source);

  // Gives the cases to the submission, in a process of its own. REQUIRES: build() succeeded.
  ChildEnd run(const lab::json& cases, const ChildLimits& limits) const;

 private:
  ChildEnd compile() const;  // in the scratch folder

  const Places& places_;
  const lab::Lab& lab_;
  TemporaryFolder folder_;
};

}  // namespace lockstep::tools::grading
