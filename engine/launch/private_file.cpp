#include "engine/launch/private_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "engine/launch/job_token.h"

namespace lockstep::launch {
namespace {

constexpr std::size_t kMaxBytes = 4096;
constexpr std::string_view kMeetingWord = "lockstep-meeting";
constexpr const char* kOperation = "private file";

[[noreturn]] void fail_with(int number, const std::filesystem::path& path, std::string_view what) {
  fail(ErrorCode::Io, kOperation, "cannot {} {}: {}", what, path.string(), std::strerror(number));
}

// Returns the new file's inode.
unsigned long write_new_file(const std::string& path, std::string_view content) {
  const FileDescriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file.descriptor() < 0) fail_with(errno, path, "make");
  struct stat status {};
  if (::write(file.descriptor(), content.data(), content.size()) ==
          static_cast<ssize_t>(content.size()) &&
      ::fstat(file.descriptor(), &status) == 0) {
    return status.st_ino;
  }
  const int number = errno;
  ::unlink(path.c_str());
  fail_with(number, path, "write");
}

// Did a rank 0 that was killed leave it there?
bool is_left_meeting_file(const std::filesystem::path& path) {
  try {
    const auto content = read_private_file(path);
    return content && content->starts_with(kMeetingWord);
  } catch (const Error&) {
    return false;  // not even private
  }
}

// Gives the temporary file its name, or removes it. Returns 0 or the errno. A link takes no other
// file's place; only a meeting file that was left is replaced.
int move_to(const std::filesystem::path& path, const std::string& temporary) {
  int number = ::link(temporary.c_str(), path.c_str()) == 0 ? 0 : errno;
  if (number == EEXIST && is_left_meeting_file(path)) {
    if (::rename(temporary.c_str(), path.c_str()) == 0) return 0;
    number = errno;
  }
  ::unlink(temporary.c_str());
  return number;
}

}  // namespace

std::optional<std::string> read_private_file(const std::filesystem::path& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (file.descriptor() < 0 && errno == ENOENT) return std::nullopt;
  if (file.descriptor() < 0) fail_with(errno, path, "read");
  struct stat status {};
  if (::fstat(file.descriptor(), &status) != 0) fail_with(errno, path, "look at");
  require(S_ISREG(status.st_mode) && status.st_uid == ::geteuid() && (status.st_mode & 0077) == 0,
          ErrorCode::Io, kOperation,
          "expected {} to be a plain file of user {} with mode 0600, found user {} and mode {:o}",
          path.string(), ::geteuid(), status.st_uid, status.st_mode & 07777);
  std::array<char, kMaxBytes + 1> bytes{};
  const ssize_t count = ::read(file.descriptor(), bytes.data(), bytes.size());
  if (count < 0) fail_with(errno, path, "read");
  require(count > 0 && static_cast<std::size_t>(count) <= kMaxBytes, ErrorCode::Io, kOperation,
          "expected {} to hold 1 to {} bytes, found {}", path.string(), kMaxBytes,
          count > 0 ? "more" : "none");
  return std::string(bytes.data(), static_cast<std::size_t>(count));
}

MeetingFile::MeetingFile(const std::filesystem::path& path, std::string_view host, int port,
                         std::string_view token)
    : path_(path) {
  const std::string temporary = fmt::format("{}.{:.16}", path.string(), make_token());
  inode_ = write_new_file(temporary, fmt::format("{} {} {} {}\n", kMeetingWord, host, port, token));
  const int number = move_to(path, temporary);
  require(number != EEXIST, ErrorCode::Io, kOperation,
          "there is a file {} already, and it is no meeting place of Lockstep; name one that does "
          "not exist",
          path.string());
  if (number != 0) fail_with(number, path, "make");
}

MeetingFile::~MeetingFile() {
  struct stat status {};
  if (::lstat(path_.c_str(), &status) == 0 && status.st_ino == inode_) ::unlink(path_.c_str());
}

std::optional<MeetingPlace> read_meeting_file(const std::filesystem::path& path) {
  const auto text = read_private_file(path);
  if (!text) return std::nullopt;
  MeetingPlace place;
  std::string word;
  std::istringstream words(*text);
  words >> word >> place.host >> place.port >> place.token;
  if (!words || word != kMeetingWord || place.port < 1 || place.port > 65535) return std::nullopt;
  return place;
}

}  // namespace lockstep::launch
