// One lock file per GPU, in a folder that all users of a machine share: who holds the lock has the
// GPU.
//
// Locks are advisory (flock): they bind those who ask for GPUs through `lockstep with-devices`. The
// kernel frees a lock when the last process that has the file open ends, however it ends.
#pragma once

#include <filesystem>
#include <optional>

#include "engine/core/files.h"

namespace lockstep::tools {

// LOCKSTEP_LOCK_DIR, or /tmp/lockstep-gpu-locks; made, for everybody to write to, if it is not
// there. Throws Error{Io} when that cannot be.
std::filesystem::path gpu_lock_folder();

// A file held under an exclusive lock.
class FileLock {
 public:
  // Makes the file, for everybody to lock, if it is not there. Empty when somebody else holds it.
  // Throws Error{Io} when the file cannot be used.
  static std::optional<FileLock> try_lock(const std::filesystem::path& path);

  // Writes this process's number into the file, for those who wait.
  void name_holder();

  // The lock stays with this process when it becomes another program, and with what that starts.
  void keep_over_exec();

 private:
  explicit FileLock(int descriptor) : file_(descriptor) {}

  FileDescriptor file_;
};

// The number that name_holder wrote last; absent when there is none.
std::optional<int> named_holder(const std::filesystem::path& path);

}  // namespace lockstep::tools
