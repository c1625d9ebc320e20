// The job's token: the secret that the ranks of one job share, and nobody else. Whoever wants to
// join must prove that it holds it, so two users with the same port never join each other's job.
//
// Where a rank gets it from:
//   LOCKSTEP_TOKEN         `lockstep run` makes one and passes it in the environment; for several
//                          hosts without that launcher the user sets the same one on each
//   LOCKSTEP_TOKEN_FILE    a file that all ranks can read, for example in a shared home folder
//   neither, on one host   a file named after MASTER_PORT and the user, see default_token_file
//
// The protocol of the file. Rank 0 makes a fresh token, begins to serve the store with it, and only
// then puts it into the file's place by rename: so a job that finds its port in use leaves the
// file alone, and what an older job left behind is replaced. The other ranks read the file and
// knock; if the file is missing or its token is refused (it was an older one), they read again,
// until the deadline (connect.h).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "engine/launch/environment.h"

namespace lockstep::launch {

// 64 hexadecimal digits from the kernel's random numbers.
std::string make_token();

// <folder>/lockstep-<uid>-<port>.token; the folder is XDG_RUNTIME_DIR, else /run/user/<uid>, else
// /tmp.
std::filesystem::path default_token_file(const Environment& environment, int master_port);

// What a file that only this user can read and write holds; none when there is no such file.
// Throws Error{Io} when it is not a plain file of this user with mode 0600 (a symbolic link is not
// followed), or does not hold 1 to 4096 bytes.
std::optional<std::string> read_private_file(const std::filesystem::path& path);

// A private file that this process put there, and takes away when it is done with it.
class PrivateFile {
 public:
  // Writes a new file of mode 0600 beside path and renames it to path.
  // Throws Error{Io}, for example when a file of another user is in the way.
  PrivateFile(const std::filesystem::path& path, std::string_view content);
  // Removes the file, unless another one has taken its place since.
  ~PrivateFile();
  PrivateFile(const PrivateFile&) = delete;
  PrivateFile& operator=(const PrivateFile&) = delete;

 private:
  std::filesystem::path path_;
  unsigned long inode_ = 0;
};

}  // namespace lockstep::launch
