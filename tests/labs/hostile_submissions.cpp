#include "tests/labs/hostile_submissions.h"

#include <unistd.h>

namespace lockstep::testing {
namespace {

constexpr const char* kHead =
    "#include \"naive_all_reduce.h\"\n#include <arpa/inet.h>\n#include <fcntl.h>\n#include "
    "<pthread.h>\n"
    "#include <signal.h>\n#include <spawn.h>\n#include <sys/ptrace.h>\n#include <sys/resource.h>\n"
    "#include <sys/socket.h>\n#include <sys/stat.h>\n#include <sys/syscall.h>\n"
    "#include <unistd.h>\n#include <chrono>\n#include <cstdio>\n#include <cstdlib>\n"
    "#include <cstring>\n#include <fstream>\n#include <iostream>\n#include <stdexcept>\n"
    "#include <string>\n#include <thread>\n#include <vector>\n";

// A whole source: declarations, and what the function does.
std::string source(const std::string& before, const std::string& body) {
  return kHead + before + "\nvoid lab::naive_all_reduce(Rank& rank, std::span<double> buffer) {\n" +
         body + "\n}\n";
}

std::string quoted(const std::string& path) {
  return "\"" + path + "\"";
}

// A report of full points, in every form that the grader could believe.
constexpr const char* kForgedReport =
    "{\\\"held_by\\\":[],\\\"points\\\":100,\\\"passed\\\":true,\\\"cases\\\":"
    "[{\\\"passed\\\":true,\\\"points\\\":100,\\\"outcome\\\":\\\"passed\\\","
    "\\\"answer\\\":{\\\"buffers\\\":[[1],[1]],\\\"messages\\\":[]}}]}\\n";

}  // namespace

std::vector<HostileSubmission> hostile_submissions(const std::string& victim) {
  return {
      {"fork_bomb", source("", "for (;;) fork();"), "was stopped"},
      {"endless_loop", source("", "for (volatile int i = 0;; ++i) {}"), "was stopped"},
      {"sleeps_for_ever",
       source("", "for (;;) std::this_thread::sleep_for(std::chrono::hours(1));"), "was stopped"},
      {"memory_hog",
       source("", "std::vector<std::vector<char>> all;\nfor (;;) all.emplace_back(1 << 26, 'x');"),
       ""},
      {"exits_at_load",
       source("struct Exit { Exit() { std::cout << \"100 of 100 points\\n\"; exit(0); } } now;",
              ""),
       "ended before it gave an answer"},
      {"bad_pointer", source("", "*reinterpret_cast<volatile int*>(8) = 1;"),
       "crashed: Segmentation fault"},
      {"forges_a_report",
       source("",
              std::string("const char report[] = \"") + kForgedReport +
                  "\";\nfor (int fd = 1; fd < 64; ++fd) (void)!write(fd, report, sizeof report - "
                  "1);\n_exit(0);"),
       ""},
      {"prints_for_ever",
       source("", "std::string line(4096, 'x');\nfor (;;) std::cout << line << std::endl;"),
       "printed more than"},
      {"writes_outside",
       source("", "std::ofstream(" + quoted(victim) + ") << \"overwritten\";\nremove(" +
                      quoted(victim) + ");\nrename(" + quoted(victim) +
                      ", \"/tmp/stolen\");\n"
                      "throw std::runtime_error(\"done\");"),
       "threw: done"},
      {"kills_its_parent",
       source("",
              "kill(getppid(), SIGKILL);\nkill(-1, SIGKILL);\n"
              "syscall(SYS_tgkill, getppid(), getppid(), SIGKILL);\n"
              "throw std::runtime_error(\"done\");"),
       "threw: done"},
      {"template_bomb",
       source("template <int N, int M> struct Bomb {\n  static constexpr long value = Bomb<N - 1, "
              "2 * M>"
              "::value + Bomb<N - 1, 2 * M + 1>::value;\n};\ntemplate <int M> struct Bomb<0, M> {\n"
              "  static constexpr long value = M;\n};\nlong bomb = Bomb<28, 1>::value;",
              ""),
       "does not compile"},
      {"includes_an_endless_file", "#include \"/dev/zero\"\n", "does not compile"},
      {"defines_nothing", "int main() { return 0; }\n", "undefined symbol: lab::naive_all_reduce"}};
}

std::string escape_attempts(const std::string& solution, const std::string& secret,
                            const std::string& victim, int port) {
  const auto attempt = [](const std::string& name, const std::string& works) {
    return "  if (" + works + ") { std::cerr << \"" + name + "\"; abort(); }\n";
  };
  const std::string connects =
      "[] {\n    sockaddr_in to{};\n    to.sin_family = AF_INET;\n    to.sin_port = htons(" +
      std::to_string(port) +
      ");\n    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);\n"
      "    const int s = socket(AF_INET, SOCK_STREAM, 0);\n"
      "    return connect(s, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;\n  }()";
  const std::string raises =
      "[] { rlimit more{1 << 20, 1 << 20}; return setrlimit(RLIMIT_FSIZE, &more) == 0; }()";
  const std::string attempts =
      attempt("reads the secret", "open(" + quoted(secret) + ", O_RDONLY) >= 0") +
      attempt("writes a file", "open(" + quoted(victim) + ", O_WRONLY) >= 0") +
      attempt("removes a file", "unlink(" + quoted(victim) + ") == 0") +
      attempt("reaches the network", connects) +
      attempt("sees the grader's processes", "kill(" + std::to_string(::getpid()) + ", 0) == 0") +
      attempt("raises its limits", raises) +
      "  (void)!open(\"/tmp/lockstep_escape\", O_CREAT | O_RDWR, 0600);\n"
      "  if (fork() == 0) {\n    setsid();\n    execlp(\"sleep\", \"sleep\", " +
      quoted(kLeftBehind) + ", nullptr);\n  }\n";
  return kHead + std::string("namespace {\nstruct Attempts {\n Attempts() {\n") + attempts +
         " }\n} attempts;\n}\n" + solution;
}

}  // namespace lockstep::testing
