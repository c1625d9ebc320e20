// A folder through which ranks that this program starts hand it what they found.
#pragma once

#include <string>

namespace lockstep::tools {

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
