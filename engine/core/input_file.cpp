#include "engine/core/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "engine/core/error.h"

namespace lockstep {

// O_NONBLOCK: opening a pipe would else wait for its writer.
InputFile::InputFile(const std::filesystem::path& path, std::string_view operation)
    : name_(path.string()),
      operation_(operation),
      descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (descriptor_ < 0) fail_with_errno("open", errno);
  struct stat status {};
  const bool is_known = ::fstat(descriptor_, &status) == 0;
  const int reason = errno;
  if (is_known && S_ISREG(status.st_mode)) {
    num_bytes_ = static_cast<std::uint64_t>(status.st_size);
    return;
  }
  ::close(descriptor_);
  if (!is_known) fail_with_errno("read", reason);
  fail(ErrorCode::Io, operation_, "'{}' is a {}", name_,
       S_ISDIR(status.st_mode) ? "folder; name a file in it" : "pipe or a device; name a file");
}

InputFile::~InputFile() {
  ::close(descriptor_);
}

std::size_t InputFile::read(std::span<std::byte> destination) {
  std::size_t num_read = 0;
  while (num_read < destination.size()) {
    const ssize_t count =
        ::read(descriptor_, destination.data() + num_read, destination.size() - num_read);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_with_errno("read", errno);
    if (count == 0) break;
    num_read += static_cast<std::size_t>(count);
  }
  return num_read;
}

void InputFile::read_exactly(std::span<std::byte> destination) {
  require(read(destination) == destination.size(), ErrorCode::Io, operation_,
          "'{}' ends before its data does", name_);
}

void InputFile::rewind() {
  if (::lseek(descriptor_, 0, SEEK_SET) != 0) fail_with_errno("read", errno);
}

void InputFile::fail_with_errno(std::string_view what, int reason) const {
  fail(ErrorCode::Io, operation_, "cannot {} '{}': {}", what, name_,
       std::generic_category().message(reason));
}

std::string read_text_file(const std::filesystem::path& path, std::string_view operation) {
  InputFile file(path, operation);
  std::string text(file.num_bytes(), '\0');
  text.resize(file.read(std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace lockstep
