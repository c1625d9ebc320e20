#include "tools/grading/bubblewrap.h"

#include "engine/core/error.h"
#include "engine/launch/process.h"
#include "tools/grading/limited_run.h"

namespace lockstep::tools::grading {
namespace {

// A user who is nobody outside either.
const std::vector<std::string> kWalls = {
    "--unshare-all", "--uid",  "65534", "--gid", "65534", "--die-with-parent",
    "--new-session", "--proc", "/proc", "--dev", "/dev",  "--tmpfs",
    "/tmp"};

// Empty where there is none.
std::string find_bwrap() {
  try {
    return launch::find_program("bwrap", launch::current_environment(), "grade");
  } catch (const Error&) {
    return {};
  }
}

std::vector<std::string> wrap(const std::string& bwrap) {
  std::vector<std::string> words{bwrap};
  words.insert(words.end(), kWalls.begin(), kWalls.end());
  for (const char* folder : {"/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache",
                             "/etc/alternatives", "/sys/devices/system/cpu"}) {
    words.insert(words.end(), {"--ro-bind-try", folder, folder});
  }
  return words;
}

// Its path if it works, else empty.
std::string find_working_bwrap() {
  if (launch::find_variable(launch::current_environment(), "LOCKSTEP_BUBBLEWRAP") == "off")
    return {};
  const std::string bwrap = find_bwrap();
  if (bwrap.empty()) return {};
  std::vector<std::string> words = wrap(bwrap);
  words.push_back("/usr/bin/true");
  const RunEnd end = run_limited(words, {}, {});
  return end.how == RunEnd::How::exited && end.code == 0 ? bwrap : std::string();
}

const std::string& working_bwrap() {
  static const std::string path = find_working_bwrap();
  return path;
}

}  // namespace

bool has_bubblewrap() {
  return !working_bwrap().empty();
}

std::vector<std::string> inside_bubblewrap(const std::vector<std::string>& command,
                                           const std::string& folder,
                                           const std::vector<std::string>& readable) {
  std::vector<std::string> words = wrap(working_bwrap());
  for (const std::string& path : readable) {
    words.insert(words.end(), {"--ro-bind-try", path, path});
  }
  words.insert(words.end(), {"--bind", folder, folder, "--chdir", folder, "--"});
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

}  // namespace lockstep::tools::grading
