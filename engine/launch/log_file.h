// One stream of one rank in a file.
#pragma once

#include <string>
#include <string_view>

#include "engine/core/files.h"

namespace lockstep::launch {

class LogFile {
 public:
  LogFile() = default;
  // Makes the folders above it. Throws Error{Io}.
  explicit LogFile(const std::string& path);

  bool is_open() const { return file_.is_open(); }
  const std::string& path() const { return path_; }

  // Appends. When that fails (disk full), closes the file and returns the error number; else 0.
  int write(std::string_view bytes);

 private:
  std::string path_;
  FileDescriptor file_;
};

}  // namespace lockstep::launch
