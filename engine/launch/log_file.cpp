#include "engine/launch/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "engine/core/error.h"

namespace lockstep::launch {

LogFile::LogFile(const std::string& path) : path_(path) {
  std::error_code problem;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), problem);
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
  require(descriptor_ >= 0, ErrorCode::Io, "run", "cannot write the log {}: {}", path,
          problem ? problem.message() : std::strerror(errno));
}

LogFile::~LogFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

LogFile::LogFile(LogFile&& other) noexcept {
  *this = std::move(other);
}

LogFile& LogFile::operator=(LogFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

int LogFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const int number = errno;
      ::close(std::exchange(descriptor_, -1));
      return number;
    }
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return 0;
}

}  // namespace lockstep::launch
