#include "engine/core/files.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "engine/core/error.h"

namespace lockstep {

// O_NONBLOCK, because opening a pipe would otherwise wait for its writer.
InputFile::InputFile(const std::filesystem::path& path, std::string_view operation)
    : name_(path.string()),
      operation_(operation),
      file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (!file_.is_open()) fail_with_errno("open", errno);
  struct stat status {};
  if (::fstat(file_.descriptor(), &status) != 0) fail_with_errno("read", errno);
  require(S_ISREG(status.st_mode), ErrorCode::Io, operation_, "'{}' is a {}", name_,
          S_ISDIR(status.st_mode) ? "folder; name a file in it" : "pipe or a device; name a file");
  num_bytes_ = static_cast<std::uint64_t>(status.st_size);
}

std::size_t InputFile::read(std::span<std::byte> destination) {
  std::size_t num_read = 0;
  while (num_read < destination.size()) {
    const std::span<std::byte> rest = destination.subspan(num_read);
    const ssize_t count = ::read(file_.descriptor(), rest.data(), rest.size());
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
  if (::lseek(file_.descriptor(), 0, SEEK_SET) != 0) fail_with_errno("read", errno);
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

namespace {

std::string errno_text() {
  return std::generic_category().message(errno);
}

// The kernel has the same limit.
constexpr int kMaxLinks = 40;

// The file that a write to path changes: the end of its symbolic links, which need not exist.
std::filesystem::path resolve_links(std::filesystem::path path, std::string_view operation) {
  std::error_code error;
  for (int i = 0; std::filesystem::is_symlink(path, error); ++i) {
    require(i < kMaxLinks, ErrorCode::Io, operation, "the links of '{}' lead in a circle",
            path.string());
    const std::filesystem::path link = std::filesystem::read_symlink(path, error);
    require(!error, ErrorCode::Io, operation, "cannot follow the link '{}': {}", path.string(),
            error.message());
    path = path.parent_path() / link;  // link alone where it is absolute
  }
  return path;
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

AtomicFile::AtomicFile(const std::filesystem::path& path, std::string_view operation)
    : operation_(operation), target_(path) {
  require(target_.has_filename(), ErrorCode::Io, operation_,
          "expected the path of a file to write, found '{}'", path.string());
  struct stat status {};
  const bool exists = ::stat(target_.c_str(), &status) == 0;
  require(!exists || !S_ISDIR(status.st_mode), ErrorCode::Io, operation_,
          "'{}' is a folder; name a file in it", target_.string());
  if (exists && ::access(target_.c_str(), W_OK) != 0) fail_with_errno("cannot write to");

  if (exists && !S_ISREG(status.st_mode)) {
    file_ = FileDescriptor(::open(target_.c_str(), O_WRONLY | O_CLOEXEC));
    if (!file_.is_open()) fail_with_errno("cannot open");
    return;
  }
  target_ = resolve_links(path, operation_);
  has_limit_ = true;
  do {  // skips a name that an earlier process with this id left behind
    temporary_ = temporary_name(target_);
    constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    file_ = FileDescriptor(::open(temporary_.c_str(), kFlags, 0666));
  } while (!file_.is_open() && errno == EEXIST);
  if (!file_.is_open()) {
    const std::string reason = errno_text();
    fail(ErrorCode::Io, operation_, "cannot make a file in the folder '{}' for '{}': {}",
         folder_of(target_).string(), target_.filename().string(), reason);
  }
  if (exists && ::fchmod(file_.descriptor(), status.st_mode & 07777) != 0) {
    const int reason = errno;
    ::unlink(temporary_.c_str());
    errno = reason;
    fail_with_errno("cannot keep the permissions of");
  }
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (has_limit_) require_below_limit(bytes.size());
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_.descriptor(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_with_errno("cannot write to");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    num_written_ += static_cast<std::size_t>(written);
  }
}

void AtomicFile::require_below_limit(std::size_t num_bytes) const {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  require(num_written_ + num_bytes <= limit.rlim_cur, ErrorCode::Io, operation_,
          "cannot write to '{}': it would be larger than the {} bytes that this process may write "
          "to a file (ulimit -f)",
          target_.string(), limit.rlim_cur);
}

void AtomicFile::publish() {
  if (temporary_.empty()) return;
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail_with_errno("cannot rename onto");
  temporary_.clear();
}

void AtomicFile::commit() {
  if (temporary_.empty()) return close();
  if (::fsync(file_.descriptor()) != 0) fail_with_errno("cannot sync");
  close();
  publish();

  // The rename itself is durable only once the folder is on disk.
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  const FileDescriptor folder(::open(folder_of(target_).c_str(), kFlags));
  if (!folder.is_open()) fail_with_errno("cannot open the folder of");
  // Some file systems cannot sync folders (EINVAL); there the rename has to do.
  const bool is_synced = ::fsync(folder.descriptor()) == 0 || errno == EINVAL;
  if (!is_synced) fail_with_errno("cannot sync the folder of");
}

void AtomicFile::fail_with_errno(std::string_view what) const {
  const std::string reason = errno_text();
  fail(ErrorCode::Io, operation_, "{} '{}': {}", what, target_.string(), reason);
}

// Some file systems only report here that they are full.
void AtomicFile::close() {
  if (::close(file_.release()) != 0 && errno != EINTR) fail_with_errno("cannot close");
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
    // The access is only asked about, because opening a pipe would wait for its reader.
    const bool writable = ::access(path.c_str(), W_OK) == 0;
    const std::string reason = writable ? "" : errno_text();
    require(writable, ErrorCode::Io, "save", "cannot write to '{}': {}", path.string(), reason);
    return;
  }
  AtomicFile probe(path);
}

TemporaryFolder::TemporaryFolder() {
  const char* const parent = std::getenv("TMPDIR");
  path_ = std::string(parent ? parent : "/tmp") + "/lockstep_XXXXXX";
  const bool is_made = ::mkdtemp(path_.data()) != nullptr;
  require(is_made, ErrorCode::Io, "TMPDIR", "cannot make a temporary folder in '{}': {}",
          parent ? parent : "/tmp", errno_text());
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

bool is_same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  struct stat of_a {};
  struct stat of_b {};
  const bool a_exists = ::stat(a.c_str(), &of_a) == 0;
  const bool b_exists = ::stat(b.c_str(), &of_b) == 0;
  if (a_exists != b_exists) return false;
  if (a_exists) return of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
  const auto whole_path = [](const std::filesystem::path& path) {
    const std::filesystem::path end = resolve_links(path, "save");
    std::error_code ignored;  // a missing folder is reported when the file is opened
    return std::filesystem::weakly_canonical(folder_of(end), ignored) / end.filename();
  };
  return whole_path(a) == whole_path(b);
}

}  // namespace lockstep
