// One stream of one rank in a file.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::launch {

class LogFile {
 public:
  LogFile() = default;
  // Makes the folders above it. Throws Error{Io}.
  explicit LogFile(const std::string& path);
  ~LogFile();
  LogFile(LogFile&& other) noexcept;
  LogFile& operator=(LogFile&& other) noexcept;

  bool is_open() const { return descriptor_ >= 0; }
  const std::string& path() const { return path_; }

  // Appends. When that fails (disk full), closes the file and returns the error number; else 0.
  int write(std::string_view bytes);

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace lockstep::launch
