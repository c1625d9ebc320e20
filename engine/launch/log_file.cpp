#include "engine/launch/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "engine/core/error.h"

namespace lockstep::launch {

LogFile::LogFile(const std::string& path) : path_(path) {
  std::error_code problem;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), problem);
  file_ = FileDescriptor(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
  require(file_.is_open(), ErrorCode::Io, "run", "cannot write the log {}: {}", path,
          problem ? problem.message() : std::strerror(errno));
}

int LogFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file_.descriptor(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const int number = errno;
      file_.close();
      return number;
    }
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return 0;
}

}  // namespace lockstep::launch
