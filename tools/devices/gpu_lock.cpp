#include "tools/devices/gpu_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "engine/core/error.h"

namespace lockstep::tools {
namespace {

constexpr mode_t kSharedFolder = 01777;  // everybody may add files, and remove only their own
constexpr mode_t kSharedFile = 0666;

// Files made meanwhile get exactly the mode that is asked for.
class OpenUmask {
 public:
  OpenUmask() : before_(umask(0)) {}
  ~OpenUmask() { umask(before_); }
  OpenUmask(const OpenUmask&) = delete;
  OpenUmask& operator=(const OpenUmask&) = delete;

 private:
  mode_t before_;
};

[[noreturn]] void fail_with_errno(const std::filesystem::path& path, const char* what) {
  fail(ErrorCode::Io, "with-devices", "{} {}: {}; LOCKSTEP_LOCK_DIR names another folder", what,
       path.string(), std::strerror(errno));
}

// A file that exists is opened without O_CREAT: with it, kernels refuse other users' files in a
// folder like /tmp (fs.protected_regular).
int open_existing(const std::filesystem::path& path) {
  constexpr int kFlags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  const int descriptor = open(path.c_str(), O_RDWR | kFlags);
  return descriptor < 0 && errno == EACCES ? open(path.c_str(), O_RDONLY | kFlags) : descriptor;
}

int open_or_make(const std::filesystem::path& path) {
  while (true) {
    int descriptor = open_existing(path);
    if (descriptor >= 0 || errno != ENOENT) return descriptor;
    const OpenUmask open_umask;
    descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kSharedFile);
    if (descriptor >= 0 || errno != EEXIST) return descriptor;
  }
}

}  // namespace

std::filesystem::path gpu_lock_folder() {
  const char* named = std::getenv("LOCKSTEP_LOCK_DIR");
  const bool is_named = named && *named;
  const std::filesystem::path folder = is_named ? named : "/tmp/lockstep-gpu-locks";
  {
    const OpenUmask open_umask;
    if (mkdir(folder.c_str(), kSharedFolder) != 0 && errno != EEXIST) {
      fail_with_errno(folder, "cannot make the folder of lock files");
    }
  }
  struct stat found {};
  // Where everybody may write, a link may lead to where its maker wants us to write.
  if ((is_named ? stat : lstat)(folder.c_str(), &found) != 0) fail_with_errno(folder, "cannot use");
  require(S_ISDIR(found.st_mode), ErrorCode::Io, "with-devices",
          "{} is not a folder; remove it, or let LOCKSTEP_LOCK_DIR name another", folder.string());
  return folder;
}

std::optional<FileLock> FileLock::try_lock(const std::filesystem::path& path) {
  FileLock lock(open_or_make(path));
  if (!lock.file_.is_open()) fail_with_errno(path, "cannot open the lock file");
  struct stat found {};
  require(fstat(lock.file_.descriptor(), &found) == 0 && S_ISREG(found.st_mode), ErrorCode::Io,
          "with-devices", "{} is not a regular file; remove it", path.string());
  if (flock(lock.file_.descriptor(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) fail_with_errno(path, "cannot lock");
  return std::nullopt;
}

void FileLock::name_holder() {
  // Only a hint for people: a file of another user's making may be closed to writing.
  const std::string text = fmt::format("{}\n", getpid());
  if (ftruncate(file_.descriptor(), 0) != 0) return;
  [[maybe_unused]] const ssize_t written = pwrite(file_.descriptor(), text.data(), text.size(), 0);
}

void FileLock::keep_over_exec() {
  fcntl(file_.descriptor(), F_SETFD, 0);
}

std::optional<int> named_holder(const std::filesystem::path& path) {
  std::ifstream file(path);
  int pid = 0;
  if (!(file >> pid) || pid <= 0) return std::nullopt;
  return pid;
}

}  // namespace lockstep::tools
