#include "engine/launch/job_token.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "engine/core/error.h"

namespace lockstep::launch {
namespace {

constexpr std::size_t kMaxBytes = 4096;

[[noreturn]] void fail_with_errno(const std::filesystem::path& path, std::string_view what) {
  const int number = errno;
  fail(ErrorCode::Io, "job token", "cannot {} {}: {}", what, path.string(), std::strerror(number));
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }

 private:
  int number_;
};

std::string random_hex(std::size_t num_bytes) {
  std::array<unsigned char, 32> bytes{};
  std::size_t have = 0;
  while (have < num_bytes) {
    const ssize_t got = ::getrandom(bytes.data() + have, num_bytes - have, 0);
    if (got > 0) have += static_cast<std::size_t>(got);
    require(got > 0 || errno == EINTR, ErrorCode::Io, "job token",
            "the kernel gives no random numbers: {}", std::strerror(errno));
  }
  std::string text;
  for (std::size_t i = 0; i < num_bytes; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

}  // namespace

std::string make_token() {
  return random_hex(32);
}

std::filesystem::path default_token_file(const Environment& environment, int master_port) {
  const uid_t user = ::geteuid();
  std::filesystem::path folder = "/tmp";
  const auto runtime_folder = find_variable(environment, "XDG_RUNTIME_DIR");
  const std::string usual = fmt::format("/run/user/{}", user);
  struct stat status {};
  if (runtime_folder && runtime_folder->starts_with('/')) {
    folder = *runtime_folder;
  } else if (::stat(usual.c_str(), &status) == 0 && status.st_uid == user) {
    folder = usual;  // what XDG_RUNTIME_DIR is in this user's other terminals
  }
  return folder / fmt::format("lockstep-{}-{}.token", user, master_port);
}

std::optional<std::string> read_private_file(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0 && errno == ENOENT) return std::nullopt;
  if (file.get() < 0) fail_with_errno(path, "read");
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail_with_errno(path, "look at");
  require(S_ISREG(status.st_mode) && status.st_uid == ::geteuid() && (status.st_mode & 0077) == 0,
          ErrorCode::Io, "job token",
          "expected {} to be a plain file of user {} with mode 0600, found user {} and mode {:o}; "
          "remove it, or set LOCKSTEP_TOKEN to the same value for all ranks",
          path.string(), ::geteuid(), status.st_uid, status.st_mode & 07777);
  std::array<char, kMaxBytes + 1> bytes{};
  const ssize_t count = ::read(file.get(), bytes.data(), bytes.size());
  if (count < 0) fail_with_errno(path, "read");
  require(count > 0 && static_cast<std::size_t>(count) <= kMaxBytes, ErrorCode::Io, "job token",
          "{} is empty or larger than {} bytes: not what a job of Lockstep writes there",
          path.string(), kMaxBytes);
  return std::string(bytes.data(), static_cast<std::size_t>(count));
}

PrivateFile::PrivateFile(const std::filesystem::path& path, std::string_view content)
    : path_(path) {
  const std::string temporary = fmt::format("{}.{}", path.string(), random_hex(8));
  {
    const Descriptor file(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (file.get() < 0) fail_with_errno(temporary, "make");
    struct stat status {};
    const bool is_written =
        ::write(file.get(), content.data(), content.size()) == static_cast<ssize_t>(content.size());
    if (!is_written || ::fstat(file.get(), &status) != 0) {
      const int number = errno;
      ::unlink(temporary.c_str());
      errno = number;
      fail_with_errno(temporary, "write");
    }
    inode_ = status.st_ino;
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int number = errno;
    ::unlink(temporary.c_str());
    errno = number;
    fail_with_errno(path, "replace");
  }
}

PrivateFile::~PrivateFile() {
  struct stat status {};
  if (::lstat(path_.c_str(), &status) == 0 && status.st_ino == inode_) ::unlink(path_.c_str());
}

}  // namespace lockstep::launch
