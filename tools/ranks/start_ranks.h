// Starting this program once more, as the ranks of a job on this machine, and a folder through
// which they hand it what they found.
#pragma once

#include <string>
#include <vector>

#include "tools/ranks/rank_flags.h"

namespace lockstep::tools {

// The file of this program: "/proc/self/exe" would be mpirun, once mpirun starts it.
std::string this_program();

// Starts num_ranks processes with these arguments (argv as it was given to this program): under
// --comm mpi by `mpirun -np N`, else as `lockstep run --standalone --nproc-per-node N` does, with
// the ranks' lines as they wrote them. Returns the exit code that this program ends with; under
// mpirun it does not return, since mpirun takes this process's place.
// REQUIRES: no other thread in this process.
// Throws Error{Usage} when --comm mpi finds no mpirun; else what launch::launch_ranks does.
int start_ranks(const RankFlags& flags, const std::vector<std::string>& arguments, int num_ranks);

// A folder that is gone with this object.
class TemporaryFolder {
 public:
  // operation: the tag of the error. Throws Error{Io} where none can be made.
  explicit TemporaryFolder(const char* operation);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace lockstep::tools
