#include "engine/checkpoint/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "engine/core/error.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::string_view kOperation = "save";

std::string errno_text() {
  return std::generic_category().message(errno);
}

// The file that a write to path changes: the end of its symbolic links.
std::filesystem::path resolve_links(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_symlink(path, error)) return path;
  std::filesystem::path resolved = std::filesystem::weakly_canonical(path, error);
  require(!error, ErrorCode::Io, kOperation, "cannot follow the link '{}': {}", path.string(),
          error.message());
  return resolved;
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

std::filesystem::path temporary_name(const std::filesystem::path& target) {
  static std::atomic<unsigned> counter{0};
  std::filesystem::path name = target;
  name += fmt::format(".partial-{}-{}", ::getpid(), counter.fetch_add(1));
  return name;
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& path) : target_(resolve_links(path)) {
  require(target_.has_filename(), ErrorCode::Io, kOperation,
          "expected the path of a file to write, found '{}'", path.string());
  struct stat status {};
  const bool exists = ::stat(target_.c_str(), &status) == 0;
  require(!exists || !S_ISDIR(status.st_mode), ErrorCode::Io, kOperation,
          "'{}' is a folder; name a file in it", target_.string());
  if (exists && ::access(target_.c_str(), W_OK) != 0) fail_with_errno("cannot write to");

  if (exists && !S_ISREG(status.st_mode)) {
    descriptor_ = ::open(target_.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor_ < 0) fail_with_errno("cannot open");
    return;
  }
  do {  // a name that an earlier process with this id left behind is passed over
    temporary_ = temporary_name(target_);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ < 0) {
    const std::string reason = errno_text();
    fail(ErrorCode::Io, kOperation, "cannot make a file in the folder '{}' for '{}': {}",
         folder_of(target_).string(), target_.filename().string(), reason);
  }
  if (exists && ::fchmod(descriptor_, status.st_mode & 07777) != 0) {
    const int reason = errno;
    close_and_remove_temporary();
    errno = reason;
    fail_with_errno("cannot keep the permissions of");
  }
}

AtomicFile::~AtomicFile() {
  close_and_remove_temporary();
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_with_errno("cannot write to");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  if (temporary_.empty()) return;
  if (::fsync(descriptor_) != 0) fail_with_errno("cannot sync");
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail_with_errno("cannot rename onto");
  temporary_.clear();

  // The rename itself lasts only once the folder is on disk.
  const int folder = ::open(folder_of(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) fail_with_errno("cannot open the folder of");
  const int result = ::fsync(folder);
  const int reason = errno;
  ::close(folder);
  errno = reason;
  // Some file systems cannot sync folders (EINVAL); there the rename is all there is.
  if (result != 0 && reason != EINVAL) fail_with_errno("cannot sync the folder of");
}

void AtomicFile::fail_with_errno(std::string_view what) const {
  const std::string reason = errno_text();
  fail(ErrorCode::Io, kOperation, "{} '{}': {}", what, target_.string(), reason);
}

void AtomicFile::close_and_remove_temporary() noexcept {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  descriptor_ = -1;
  temporary_.clear();
}

void write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

void write_file_atomically(const std::filesystem::path& path, std::string_view text) {
  write_file_atomically(path, std::as_bytes(std::span(text)));
}

void check_writable(const std::filesystem::path& path) {
  struct stat status {};
  const bool exists = ::stat(path.c_str(), &status) == 0;
  if (exists && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
    // Opening a pipe would wait for its reader.
    const bool writable = ::access(path.c_str(), W_OK) == 0;
    const std::string reason = writable ? "" : errno_text();
    require(writable, ErrorCode::Io, kOperation, "cannot write to '{}': {}", path.string(), reason);
    return;
  }
  AtomicFile probe(path);
}

}  // namespace lockstep::checkpoint
