#include "engine/launch/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "engine/core/error.h"
#include "engine/runtime/cpu_use.h"
#include "engine/runtime/threads.h"
#include "engine/runtime/wait.h"

namespace lockstep::launch {
namespace {

struct Pipe {
  FileDescriptor read_end;
  FileDescriptor write_end;

  Pipe() {
    int ends[2];
    const int result = ::pipe2(ends, O_CLOEXEC);
    require(result == 0, ErrorCode::Io, "run", "cannot make a pipe: {}", std::strerror(errno));
    read_end = FileDescriptor(ends[0]);
    write_end = FileDescriptor(ends[1]);
  }
};

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

// Runs in the child, between fork and exec. Returns only if exec failed.
void become(const char* program, char* const* arguments, char* const* environment, int out, int err,
            pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(128 + SIGKILL);  // it died before the line above
  ::setsid();
  // This includes SIGINT and SIGQUIT, which a shell lets its background jobs ignore: we pass them
  // on.
  for (const int number : {SIGPIPE, SIGXFSZ, SIGTTOU, SIGINT, SIGQUIT, SIGCHLD}) {
    ::signal(number, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int input = ::open("/dev/null", O_RDONLY);
  ::dup2(input, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  if (input > STDERR_FILENO) ::close(input);
  ::execve(program, arguments, environment);
}

bool is_program(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         ::access(path.c_str(), X_OK) == 0;
}

struct Process {
  pid_t id;
  pid_t parent;
};

std::vector<Process> all_processes() {
  std::vector<Process> processes;
  std::error_code no_more;
  for (std::filesystem::directory_iterator entry("/proc", no_more), end; !no_more && entry != end;
       entry.increment(no_more)) {
    const std::string name = entry->path().filename();
    pid_t id = 0;
    const auto [rest, problem] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (problem != std::errc{} || *rest != '\0') continue;
    if (const auto parent = runtime::parent_of(id)) processes.push_back({id, *parent});
  }
  return processes;
}

}  // namespace

Environment current_environment() {
  Environment environment;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

std::optional<std::string> find_variable(const Environment& environment, std::string_view name) {
  const auto found = environment.find(name);
  if (found == environment.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

std::optional<int> find_number(const Environment& environment, std::string_view name) {
  const std::optional<std::string> text = find_variable(environment, name);
  if (!text) return std::nullopt;
  int number = -1;
  const char* const end = text->data() + text->size();
  const auto [rest, problem] = std::from_chars(text->data(), end, number);
  require(problem == std::errc{} && rest == end && number >= 0, ErrorCode::Usage, name,
          "expected a whole number, 0 or more, in this environment variable, found '{}'", *text);
  return number;
}

std::string find_program(const std::string& name, const Environment& environment,
                         std::string_view operation) {
  if (name.find('/') != std::string::npos) {
    if (is_program(name)) return name;
    struct stat status {};
    require(::stat(name.c_str(), &status) != 0, ErrorCode::Usage, operation,
            "{} is not executable; name the program that runs it first, for example: -- python3 {}",
            name, name);
    fail(ErrorCode::Usage, operation, "there is no program {}", name);
  }
  const std::string path =
      find_variable(environment, "PATH").value_or("/usr/local/bin:/usr/bin:/bin");
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    const std::string folder = path.substr(begin, end - begin);
    const std::string candidate = folder.empty() ? "./" + name : folder + "/" + name;
    if (is_program(candidate)) return candidate;
    begin = end + 1;
  }
  fail(ErrorCode::Usage, operation,
       "there is no program '{}' in PATH; for one in this folder say ./{}", name, name);
}

StartedProcess start_process(const std::string& program, const std::vector<std::string>& command,
                             const Environment& environment, const std::vector<int>& cores) {
  std::vector<std::string> words = command;
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  const std::vector<char*> argv = pointers(words);
  const std::vector<char*> envp = pointers(variables);
  Pipe out;
  Pipe err;
  Pipe problem;  // a successful exec closes it, else it brings the error number
  const pid_t parent = ::getpid();
  const pid_t process = ::fork();
  require(process >= 0, ErrorCode::Io, "run", "cannot make a process: {}", std::strerror(errno));
  if (process == 0) {
    runtime::bind_to(cores);
    become(program.c_str(), argv.data(), envp.data(), out.write_end.descriptor(),
           err.write_end.descriptor(), parent);
    const int number = errno;
    (void)!::write(problem.write_end.descriptor(), &number, sizeof number);
    ::_exit(127);
  }
  problem.write_end.close();
  int number = 0;
  ssize_t count = 0;
  do {
    count = ::read(problem.read_end.descriptor(), &number, sizeof number);
  } while (count < 0 && errno == EINTR);
  require(count <= 0, ErrorCode::Io, "run", "cannot start {}: {}{}", program, std::strerror(number),
          number == ENOEXEC ? "; a script starts with #! and its interpreter" : "");
  ::fcntl(out.read_end.descriptor(), F_SETFL, O_NONBLOCK);
  ::fcntl(err.read_end.descriptor(), F_SETFL, O_NONBLOCK);
  return {process, std::move(out.read_end), std::move(err.read_end)};
}

// Opened in their order, because open() takes the lowest free number; and each in the wrong
// direction, so that using it fails.
void occupy_closed_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) >= 0) continue;
    (void)!::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

void write_error_file(const Environment& environment, std::string_view message) noexcept {
  try {
    const auto path = find_variable(environment, kErrorFileVariable);
    if (!path) return;
    using Json = nlohmann::ordered_json;
    const Json extra{{"py_callstack", message}, {"timestamp", std::to_string(std::time(nullptr))}};
    const Json content{{"message", {{"message", message}, {"extraInfo", extra}}}};
    std::ofstream(*path) << content.dump(-1, ' ', false, Json::error_handler_t::replace);
  } catch (const std::exception&) {
    return;  // the message is on stderr as well
  }
}

// --- the processes below this one ---

ProcessTree::ProcessTree() {
  strangers_ = find();
  ::prctl(PR_GET_CHILD_SUBREAPER, &adopted_before_);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

ProcessTree::~ProcessTree() {
  ::prctl(PR_SET_CHILD_SUBREAPER, adopted_before_);
}

std::vector<pid_t> ProcessTree::find() const {
  const std::vector<Process> processes = all_processes();
  std::vector<pid_t> found{::getpid()};
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (const Process& process : processes) {
      if (process.parent != found[i]) continue;
      if (std::ranges::find(strangers_, process.id) == strangers_.end()) {
        found.push_back(process.id);
      }
    }
  }
  found.erase(found.begin());
  return found;
}

std::size_t ProcessTree::kill() const {
  const runtime::Deadline end = runtime::deadline_after(5);
  for (;;) {
    // Without children there are no descendants: orphans would have become children.
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0) return 0;
    const std::vector<pid_t> descendants = find();
    if (descendants.empty()) return 0;
    if (runtime::has_passed(end)) return descendants.size();
    for (const pid_t process : descendants) ::kill(process, SIGKILL);
    for (const pid_t process : descendants) ::waitpid(process, nullptr, WNOHANG);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace lockstep::launch
