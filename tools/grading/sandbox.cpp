#include "tools/grading/sandbox.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "engine/core/error.h"
#include "tools/grading/build_places.h"
#include "tools/ranks/temporary_folder.h"

namespace lockstep::tools::grading {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

// From the users that systemd, too, gives to programs for as long as they run.
constexpr unsigned kFirstScratchUser = 61184;
constexpr unsigned kNumScratchUsers = 4336;

// Enough to see whether the sandbox works.
constexpr SandboxLimits kProbe{.cpu_seconds = 1, .memory_mib = 1024, .file_mib = 1};

void append(Words& words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
}

bool is_root() {
  return ::geteuid() == 0;
}

Words limited(const SandboxLimits& limits) {
  Words words = {"prlimit",
                 fmt::format("--cpu={}", limits.cpu_seconds),
                 fmt::format("--fsize={}", limits.file_mib << 20),
                 "--stack=1048576",  // of each thread too, so that address space goes to data
                 "--nofile=256",
                 "--core=0"};
  // A sanitizer reserves more address space than any limit.
  if (!kHasSanitizer) words.push_back(fmt::format("--as={}", limits.memory_mib << 20));
  return words;
}

// bubblewrap makes the folders above a path for its own user alone.
void show(Words& words, const char* how, const fs::path& path) {
  fs::path above;
  for (const fs::path& part : path.parent_path()) {
    above /= part;
    if (above != "/") append(words, {"--perms", "0755", "--dir", above.string()});
  }
  append(words, {how, path.string(), path.string()});
}

// Without root, bubblewrap needs a namespace of users; with root it needs none, and the program
// becomes another user, since the limit on the number of processes does not bind root.
Words in_bubblewrap(const std::string& bwrap) {
  Words words = {bwrap,           "--unshare-pid", "--unshare-net",
                 "--unshare-ipc", "--unshare-uts", "--die-with-parent",
                 "--new-session", "--proc",        "/proc",
                 "--dev",         "/dev",          "--tmpfs",
                 "/tmp"};
  for (const char* folder : {"/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache",
                             "/etc/alternatives", "/sys/devices/system/cpu"}) {
    show(words, "--ro-bind-try", folder);
  }
  if (is_root()) {
    append(words, {"--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"});
  } else {
    append(words, {"--unshare-user", "--uid", "65534", "--gid", "65534"});
  }
  return words;
}

Words as_owner_of(const std::string& folder) {
  struct stat status {};
  ::stat(folder.c_str(), &status);
  const std::string user = std::to_string(status.st_uid);
  return {"setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--no-new-privs"};
}

// The command line up to the program; bwrap: its path, or empty for limits alone.
Words walls(const std::string& bwrap, const Words& readable, const std::string& folder,
            Folder access, const SandboxLimits& limits) {
  if (bwrap.empty()) {
    Words words = limited(limits);
    words.front() = launch::find_program("prlimit", launch::current_environment(), "grade");
    return words;
  }
  Words words = in_bubblewrap(bwrap);
  for (const std::string& path : readable) show(words, "--ro-bind-try", path);
  show(words, access == Folder::writable ? "--bind" : "--ro-bind", folder);
  words.push_back("--");
  if (is_root()) append(words, as_owner_of(folder));
  append(words, limited(limits));
  words.push_back("--nproc=256");
  return words;
}

bool succeeds(Words words, const Words& program) {
  append(words, program);
  const RunEnd end = run_limited(words, {{"PATH", "/usr/bin:/bin"}}, {});
  return end.how == RunEnd::How::exited && end.code == 0;
}

// Its path if it works, else empty.
std::string find_working_bwrap() {
  const launch::Environment environment = launch::current_environment();
  if (launch::find_variable(environment, "LOCKSTEP_BUBBLEWRAP") == "off") return {};
  try {
    const std::string bwrap = launch::find_program("bwrap", environment, "grade");
    const TemporaryFolder folder("grade");
    const Words walled = walls(bwrap, {}, folder.path(), Folder::read_only, kProbe);
    return succeeds(walled, {"true"}) ? bwrap : std::string();
  } catch (const Error&) {
    return {};
  }
}

const std::string& working_bwrap() {
  static const std::string path = find_working_bwrap();
  return path;
}

}  // namespace

std::vector<std::string> find_sandbox(const Places& places) {
  if (working_bwrap().empty()) return {"limits"};
  const std::string header = (places.labs / "lab.h").string();
  const std::string program = places.host.string();
  const TemporaryFolder folder("grade");
  give_to_scratch_user(folder.path());
  const Words walled =
      walls(working_bwrap(), {header, program}, folder.path(), Folder::read_only, kProbe);
  require(succeeds(walled, {"test", "-r", header, "-a", "-x", program}), ErrorCode::Io, "grade",
          "submissions run as a user who cannot read {} or run {}: chmod -R o+rX their folders",
          header, program);
  return {"limits", "bubblewrap"};
}

std::vector<std::string> sandboxed(const std::vector<std::string>& command,
                                   const std::vector<std::string>& readable,
                                   const std::string& folder, Folder access,
                                   const SandboxLimits& limits) {
  Words words = walls(working_bwrap(), readable, folder, access, limits);
  append(words, command);
  return words;
}

void give_to_scratch_user(const std::string& folder) {
  static std::atomic<unsigned> num_given = 0;
  if (working_bwrap().empty() || !is_root()) return;
  const unsigned place = static_cast<unsigned>(::getpid()) * 61 + num_given++;
  const unsigned user = kFirstScratchUser + place % kNumScratchUsers;
  const int result = ::chown(folder.c_str(), user, user);
  const int number = errno;
  require(result == 0, ErrorCode::Io, "grade", "cannot give {} to user {}: {}", folder, user,
          std::strerror(number));
}

}  // namespace lockstep::tools::grading
