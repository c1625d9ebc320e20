#include "tools/grading/sandbox.h"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "engine/launch/process.h"
#include "tools/grading/build_places.h"
#include "tools/run/processes.h"

namespace lockstep::tools::grading {
namespace {

struct SandboxLimits {
  std::size_t cpu_seconds = 0;
  std::size_t memory_mib = 0;  // address space
  std::size_t file_mib = 0;    // each file that the program writes
};

enum class Folder { read_only, writable };

namespace fs = std::filesystem;

std::string find_compiler() {
  const launch::Environment environment = launch::current_environment();
  if (const auto named = launch::find_variable(environment, "CXX")) {
    return launch::find_program(*named, environment, "CXX");
  }
  if (fs::exists(kCompiler)) return kCompiler;
  return launch::find_program("c++", environment, "grade");
}

void require_there(const fs::path& path, const char* what) {
  require(
      fs::exists(path), ErrorCode::Io, "grade",
      "expected {} at {}, found nothing; cmake --build build/release --target lab_host builds it, "
      "or install the package with its tutorials",
      what, path.string());
}

}  // namespace

Places find_places() {
  const fs::path own = fs::read_symlink("/proc/self/exe").parent_path();
  if (fs::exists(own / "lab_host")) {
    const fs::path made = fs::path(kBuildFolder) / "bin";
    require(fs::weakly_canonical(own) == fs::weakly_canonical(made), ErrorCode::Io, "grade",
            "this build was made in {} and now lies in {}; configure and build it there again",
            made.string(), own.string());
  }
  Places places{own / "lab_host", fs::path(kBuildFolder) / "labs",
                fs::path(kSourceFolder) / "tutorials/labs", kSourceFolder, find_compiler()};
  if (!fs::exists(places.host)) {
    places.host = (own / kInstalledPrograms / "lab_host").lexically_normal();
    places.modules = places.host.parent_path();
    places.labs = (own / kInstalledLabs).lexically_normal();
    places.headers = (own / kInstalledHeaders).lexically_normal();
  }
  require_there(places.host, "the program lab_host");
  require_there(places.labs / "lab.h", "the labs' headers");
  require_there(places.headers / "engine", "the engine's headers");
  return places;
}

std::string describe(const ChildEnd& end, const ChildLimits& limits) {
  switch (end.how) {
    case ChildEnd::How::exited:
      return fmt::format("exited with code {}", end.code);
    case ChildEnd::How::signalled:
      if (end.code == 128 + SIGKILL || end.code == 128 + SIGXCPU) {
        return "was stopped: it used up its processor time";
      }
      return fmt::format("crashed: {}", ::strsignal(end.code - 128));
    case ChildEnd::How::out_of_time:
      return fmt::format("was stopped after {} s: it loops, or waits for ever", limits.seconds);
    case ChildEnd::How::too_much_output:
      return fmt::format("was stopped: it printed more than {} KiB", limits.bytes >> 10);
  }
  return {};
}

namespace {

using Words = std::vector<std::string>;

// From the range that systemd also uses for temporary users.
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
                 "--stack=1048576",  // of each thread too, which leaves address space for data
                 "--nofile=256",
                 "--core=0"};
  // A sanitizer reserves more address space than any limit.
  if (!kHasSanitizer) words.push_back(fmt::format("--as={}", limits.memory_mib << 20));
  return words;
}

// bubblewrap gives the folders above a path to its own user only.
void show(Words& words, const char* how, const fs::path& path) {
  fs::path above;
  for (const fs::path& part : path.parent_path()) {
    above /= part;
    if (above != "/") append(words, {"--perms", "0755", "--dir", above.string()});
  }
  append(words, {how, path.string(), path.string()});
}

// Without root, bubblewrap needs a user namespace. With root it does not, and the program becomes
// another user, because root ignores the limit on the number of processes.
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

// The command line up to the program, which runs under the limits. In bubblewrap it can read the
// system's programs, `readable` and `folder`, and write only to a /tmp of its own and, if it is
// writable, to `folder`. If the grader is root, it runs as the folder's owner.
// bwrap: its path, or empty to apply only limits.
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
  const ChildEnd end = run_child(words, {{"PATH", "/usr/bin:/bin"}}, {});
  return end.how == ChildEnd::How::exited && end.code == 0;
}

// Its path if it works, else empty.
std::string find_working_bwrap() {
  const launch::Environment environment = launch::current_environment();
  if (launch::find_variable(environment, "LOCKSTEP_BUBBLEWRAP") == "off") return {};
  try {
    const std::string bwrap = launch::find_program("bwrap", environment, "grade");
    const TemporaryFolder folder;
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

// If the grader is root, gives each folder to a different user that owns nothing else. So a
// submission that starts endless processes reaches its own limit, not its neighbour's.
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

constexpr std::uintmax_t kMaxSourceBytes = 1 << 20;
constexpr ChildLimits kCompileLimits{.seconds = 40};
constexpr SandboxLimits kCompileSandbox{.cpu_seconds = 15, .memory_mib = 3072, .file_mib = 64};
constexpr SandboxLimits kCheckSandbox{.cpu_seconds = 3, .memory_mib = 1024, .file_mib = 0};

// Removes the scratch folder, so that paths look as the student knows them.
std::string without(const std::string& folder, std::string text) {
  for (std::size_t at = text.find(folder); at != std::string::npos; at = text.find(folder, at)) {
    text.erase(at, folder.size());
  }
  return text;
}

std::string first_lines(const std::string& text, std::size_t num_lines) {
  std::size_t end = 0;
  for (; num_lines > 0 && end < text.size(); --num_lines) {
    end = std::min(text.find('\n', end), text.size() - 1) + 1;
  }
  return text.substr(0, std::min<std::size_t>(end, 4000));
}

}  // namespace

std::vector<std::string> find_sandbox(const Places& places) {
  if (working_bwrap().empty()) return {"limits"};
  const std::string header = (places.labs / "lab.h").string();
  const std::string program = places.host.string();
  const TemporaryFolder folder;
  give_to_scratch_user(folder.path());
  const Words walled =
      walls(working_bwrap(), {header, program}, folder.path(), Folder::read_only, kProbe);
  require(succeeds(walled, {"test", "-r", header, "-a", "-x", program}), ErrorCode::Io, "grade",
          "submissions run as a user who cannot read {} or run {}: chmod -R o+rX their folders",
          header, program);
  return {"limits", "bubblewrap"};
}

Workshop::Workshop(const Places& places, const lab::Lab& lab) : places_(places), lab_(lab) {
  give_to_scratch_user(folder_.path());
}

std::string Workshop::build(const fs::path& source) {
  if (fs::file_size(source) > kMaxSourceBytes) return "the source has more than 1 MiB";
  const fs::path folder = folder_.path();
  try {
    write_file_atomically(folder / (lab_.name() + ".cpp"), read_text_file(source, "grade"));
  } catch (const Error& unreadable) {
    return std::string(unreadable.message());
  }
  // Only headers are copied from the labs' folder, because solutions are there too.
  const fs::path header = lab_.is_puzzle() ? places_.labs / "schedule.h"
                                           : places_.labs / lab_.folder / (lab_.name() + ".h");
  for (const fs::path& given : {header, places_.labs / "lab.h", places_.labs / "rank.h"}) {
    fs::copy_file(given, folder / given.filename());
  }
  const ChildEnd end = compile();
  if (end.how != ChildEnd::How::exited) return "the compiler " + describe(end, kCompileLimits);
  if (end.code != 0 || !fs::is_regular_file(folder / "lab.so")) {
    return first_lines(without(folder.string() + "/", end.err), 20);
  }
  fs::copy_file(places_.modules / ("lab_" + lab_.module() + ".so"), folder / "subject.so");
  return {};
}

ChildEnd Workshop::compile() const {
  const std::string& folder = folder_.path();
  const std::string headers = places_.headers.string();
  const fs::path compiler = fs::weakly_canonical(places_.compiler);
  Words readable = {compiler.parent_path().parent_path().string()};
  for (const char* part : {"engine", "kernels", "datasets", "lockstep.h"}) {
    readable.push_back((places_.headers / part).string());
  }
  const Words words = {places_.compiler,
                       "-std=c++20",
                       "-O1",
                       "-fPIC",
                       "-shared",
                       "-Wall",
                       "-pthread",
                       "-fno-diagnostics-color",
                       "-I" + folder,
                       "-I" + headers,
                       "-o",
                       folder + "/lab.so",
                       folder + "/" + lab_.name() + ".cpp"};
  const launch::Environment environment{{"PATH", "/usr/local/bin:/usr/bin:/bin"},
                                        {"TMPDIR", folder},
                                        {"HOME", folder},
                                        {"CCACHE_DISABLE", "1"},
                                        {"LANG", "C"}};
  Words command = walls(working_bwrap(), readable, folder, Folder::writable, kCompileSandbox);
  append(command, words);
  return run_child(command, environment, kCompileLimits);
}

ChildEnd Workshop::run(const lab::json& cases, const ChildLimits& limits) const {
  const std::string& folder = folder_.path();
  write_file_atomically(fs::path(folder) / "inputs.json", cases.dump());
  const launch::Environment environment{
      {"PATH", "/usr/bin:/bin"}, {"LANG", "C"}, {"MALLOC_ARENA_MAX", "2"}};
  // The program's folder and that of its shared libraries have the same parent.
  const std::string programs = places_.host.parent_path().parent_path().string();
  Words command = walls(working_bwrap(), {programs}, folder, Folder::read_only, kCheckSandbox);
  append(command, {places_.host.string(), folder});
  return run_child(command, environment, limits);
}

}  // namespace lockstep::tools::grading
