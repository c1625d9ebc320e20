// lab_host: the process in which a submission runs, or its compiler. It locks itself in before it
// does anything for a submission. `lockstep grade` starts it, and reads one line of JSON from its
// standard output; what the submission prints goes to standard error.
//
//   lab_host check FOLDER [READABLE...]
//       loads FOLDER/lab.so, the submission, and FOLDER/subject.so, the lab's module, and hands it
//       the cases in FOLDER/inputs.json
//   lab_host probe FOLDER
//       locks itself in, and says by what; fails where it then cannot read FOLDER/inputs.json
//   lab_host compile FOLDER [READABLE...] -- COMPILER ARGUMENT...
//       becomes the compiler, which writes to FOLDER only
#include <cxxabi.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <grp.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "tutorials/labs/host/host_build.h"
#include "tutorials/labs/host/landlock.h"
#include "tutorials/labs/host/limits.h"
#include "tutorials/labs/host/system_calls.h"
#include "tutorials/labs/lab.h"

namespace {

using lockstep::ErrorCode;
using lockstep::require;
using nlohmann::json;
using Subject = void(const json&, json&);

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr unsigned kScratchUser = 65534;  // nobody

// What every program needs to read.
const std::vector<std::string> kSystemFiles = {"/usr",
                                               "/lib",
                                               "/lib64",
                                               "/bin",
                                               "/etc/ld.so.cache",
                                               "/etc/alternatives",
                                               "/dev/null",
                                               "/dev/urandom",
                                               "/sys/devices/system/cpu",
                                               "/proc/cpuinfo",
                                               "/proc/meminfo"};

struct Words {
  std::string folder;
  std::vector<std::string> readable;
  std::vector<char*> program;  // what follows --, and nullptr
};

Words read_words(int argc, char** argv) {
  require(argc >= 3, ErrorCode::Usage, "lab_host",
          "expected check, compile or probe, and a folder");
  Words words{argv[2], {argv[2]}, {}};
  int i = 3;
  for (; i < argc && std::string_view(argv[i]) != "--"; ++i) words.readable.emplace_back(argv[i]);
  for (++i; i < argc; ++i) words.program.push_back(argv[i]);
  words.program.push_back(nullptr);
  words.readable.insert(words.readable.end(), kSystemFiles.begin(), kSystemFiles.end());
  return words;
}

void forbid_new_privileges() {
  const int result = ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  require(result == 0, ErrorCode::Io, "lab_host", "cannot give up privileges: {}",
          std::strerror(errno));
}

int compile(const Words& words) {
  require(words.program.size() > 1, ErrorCode::Usage, "lab_host", "expected -- and a compiler");
  lab::set_limits({.cpu_seconds = 15,
                   .memory_bytes = lab::kHasSanitizer ? 0 : 3072 * kMiB,
                   .file_bytes = 64 * kMiB,
                   .open_files = 256});
  forbid_new_privileges();
  lab::restrict_files(words.readable, {words.folder, "/dev/null"});
  ::execv(words.program[0], words.program.data());
  const int number = errno;
  lockstep::fail(ErrorCode::Io, "lab_host", "cannot start {}: {}", words.program[0],
                 std::strerror(number));
}

// Root becomes a user who owns nothing. Returns whether this process was root.
bool leave_root() {
  if (::geteuid() != 0) return false;
  const bool done =
      ::setgroups(0, nullptr) == 0 && ::setgid(kScratchUser) == 0 && ::setuid(kScratchUser) == 0;
  require(done, ErrorCode::Io, "lab_host", "cannot become user {}: {}", kScratchUser,
          std::strerror(errno));
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // which the kernel forgets when the user changes
  return true;
}

// Returns by what this process is now held.
json lock_in(const Words& words) {
  json by = {"limits", "system calls"};
  // So that address space goes to data, also where many cores make many threads.
  ::mallopt(M_ARENA_MAX, 2);
  pthread_attr_t thread;
  ::pthread_attr_init(&thread);
  ::pthread_attr_setstacksize(&thread, kMiB);
  ::pthread_setattr_default_np(&thread);
  lab::set_limits({.cpu_seconds = 3,
                   .memory_bytes = lab::kHasSanitizer ? 0 : 1024 * kMiB,
                   .file_bytes = 0,
                   .open_files = 64});
  if (leave_root()) by.push_back("scratch user");
  forbid_new_privileges();
  if (lab::restrict_files(words.readable, {})) by.push_back("Landlock");
  lab::restrict_system_calls();
  return by;
}

// "undefined symbol: lab::ring_all_reduce(...)" of what dlopen says.
std::string readable_problem(std::string text) {
  const std::string key = "undefined symbol: ";
  const std::size_t begin = text.find(key);
  if (begin == std::string::npos) return text;
  const std::string name = text.substr(begin + key.size());
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), std::free);
  return key + (status == 0 ? plain.get() : name);
}

void* load(const std::string& path, int flags) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | flags);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    lockstep::fail(ErrorCode::Io, "load", "{}", readable_problem(why ? why : "no reason given"));
  }
  return library;
}

// {"answer": ...} or what happened instead.
json run_case(Subject* subject, const json& inputs) {
  json result;
  try {
    json answer;
    subject(inputs, answer);
    result["answer"] = std::move(answer);
  } catch (const lab::NotDone& blank) {
    result["not_done"] = blank.what();
  } catch (const std::exception& error) {
    result["threw"] = error.what();
  } catch (...) {
    result["threw"] = "something that is no std::exception";
  }
  return result;
}

json run_cases(const Words& words, const json& cases) {
  json results = json::array();
  load(words.folder + "/lab.so", RTLD_GLOBAL);
  void* const module = load(words.folder + "/subject.so", RTLD_LOCAL);
  auto* const subject = reinterpret_cast<Subject*>(::dlsym(module, "lab_subject"));
  require(subject != nullptr, ErrorCode::Io, "load", "the lab's module has no lab_subject");
  for (const json& inputs : cases) {
    results.push_back(run_case(subject, inputs));
    if (!results.back().contains("answer")) break;
  }
  return results;
}

int check(const Words& words) {
  ::close_range(3, ~0U, 0);  // nothing else that the grader has open
  const json cases =
      json::parse(lockstep::read_text_file(words.folder + "/inputs.json", "lab_host"));
  std::FILE* const out = ::fdopen(::dup(STDOUT_FILENO), "w");
  require(out != nullptr, ErrorCode::Io, "lab_host", "cannot keep standard output");
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  lock_in(words);
  json report;
  try {
    report["cases"] = run_cases(words, cases);
  } catch (const lockstep::Error& problem) {
    report["problem"] = problem.message();
  }
  fmt::print(out, "{}\n", report.dump(-1, ' ', true, json::error_handler_t::replace));
  std::fflush(nullptr);  // also what the submission printed
  ::_exit(0);            // without the submission's destructors
}

int probe(const Words& words) {
  const json report{{"held_by", lock_in(words)}};
  const bool can_read = ::access((words.folder + "/inputs.json").c_str(), R_OK) == 0;
  require(can_read, ErrorCode::Io, "lab_host",
          "a scratch user cannot read {}; let TMPDIR name a folder that everybody may enter",
          words.folder);
  fmt::print("{}\n", report.dump());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Words words = read_words(argc, argv);
    const std::string_view command = argv[1];
    if (command == "check") return check(words);
    if (command == "compile") return compile(words);
    if (command == "probe") return probe(words);
    lockstep::fail(ErrorCode::Usage, "lab_host", "expected check, compile or probe, found '{}'",
                   command);
  } catch (const lockstep::Error& error) {
    fmt::print(stderr, "lab_host: {}\n", error.what());
    return lockstep::exit_code(error.code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "lab_host: {}\n", error.what());
    return 1;
  }
}
