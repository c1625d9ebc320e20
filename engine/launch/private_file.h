// Files that hold what nobody but their user may read.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::launch {

// What a file that only this user can read and write holds; none when there is no such file.
// Throws Error{Io} when it is not a plain file of this user with mode 0600 (a symbolic link is not
// followed), or does not hold 1 to 4096 bytes.
std::optional<std::string> read_private_file(const std::filesystem::path& path);

// A meeting file: where rank 0 says at which address it serves the job's store, and with which
// token. One line, "lockstep-meeting HOST PORT TOKEN". It is there from the time when rank 0 serves
// until all ranks have joined. What a rank 0 left there that was killed is replaced; no other file
// ever is.
class MeetingFile {
 public:
  // Writes a new file of mode 0600 beside path, and moves it there when it is complete.
  // Throws Error{Io}, for example when another file is in the way.
  MeetingFile(const std::filesystem::path& path, std::string_view host, int port,
              std::string_view token);
  // Removes the file, unless another one has taken its place since.
  ~MeetingFile();
  MeetingFile(const MeetingFile&) = delete;
  MeetingFile& operator=(const MeetingFile&) = delete;

 private:
  std::filesystem::path path_;
  unsigned long inode_ = 0;
};

// What such a file says; none while it is not there, or holds anything else.
struct MeetingPlace {
  std::string host;
  int port = 0;
  std::string token;
};
// Throws Error{Io} when there is a file that is not private.
std::optional<MeetingPlace> read_meeting_file(const std::filesystem::path& path);

}  // namespace lockstep::launch
