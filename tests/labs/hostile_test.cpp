// Submissions that attack: in one batch with good ones, which keep all their points.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/labs/graded.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kLab = "05_naive_all_reduce";
constexpr const char* kLeftBehind = "86399.5";

struct HostileSubmission {
  std::string name;
  std::string source;
  std::string outcome;  // what the report says of it, in part
};

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

// Nothing of these gets a point. victim: a file that some of them try to change.
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

// The solution, which first tries to leave the sandbox in every way that we know, and aborts if one
// works: all points mean that none did. secret, victim: files that it may not read, or change;
// port: where a server of this machine listens. It starts a process that sleeps kLeftBehind
// seconds.
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

// All that the report says of a submission.
std::string all_words(const nlohmann::json& grade) {
  std::string words = grade.at("problem").is_null() ? "" : "does not compile";
  for (const nlohmann::json& check : grade.at("checks")) {
    words += " / " + check.at("outcome").get<std::string>();
  }
  return words;
}

bool has_bubblewrap() {
  return std::system("bwrap --unshare-pid --unshare-net --ro-bind / / true 2>/dev/null") == 0;
}

bool is_running(const std::string& argument) {
  return std::system(("pgrep -f '^sleep " + argument + "$' >/dev/null").c_str()) == 0;
}

// A socket of this machine that listens.
class Server {
 public:
  Server() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address_;
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address_), size), 0);
    EXPECT_EQ(::listen(socket_, 1), 0);
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address_), &size);
  }
  ~Server() { ::close(socket_); }
  int port() const { return ntohs(address_.sin_port); }

 private:
  int socket_;
  sockaddr_in address_{};
};

class Hostile : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_bubblewrap()) GTEST_SKIP() << "bubblewrap is missing or does not work here";
    write_text(victim_, "untouched");
    std::filesystem::permissions(victim_, std::filesystem::perms::all);
  }
  void expect_untouched() const {
    EXPECT_EQ(read_text(victim_), "untouched");
    EXPECT_FALSE(std::filesystem::exists("/tmp/stolen"));
    EXPECT_FALSE(std::filesystem::exists("/tmp/lockstep_escape"));
  }

  HandedOut handed_out_;
  std::string victim_ = (handed_out_.submissions() / "victim.txt").string();
};

TEST_F(Hostile, SubmissionsCostTheirOwnPointsAndNothingElse) {
  const auto hostile = hostile_submissions(victim_);
  for (const HostileSubmission& submission : hostile) {
    handed_out_.submit(submission.name, kLab, submission.source);
  }
  handed_out_.submit("a_good_one", kLab, handed_out_.solution(kLab));
  handed_out_.submit("the_last_good_one", kLab, handed_out_.solution(kLab));
  const nlohmann::json grades = handed_out_.grade();
  EXPECT_EQ(grades.at("a_good_one").at("points"), 100);
  EXPECT_EQ(grades.at("the_last_good_one").at("points"), 100);
  for (const HostileSubmission& submission : hostile) {
    const nlohmann::json& grade = grades.at(submission.name);
    EXPECT_EQ(grade.at("points"), 0) << submission.name << ": " << all_words(grade);
    EXPECT_THAT(all_words(grade), HasSubstr(submission.outcome)) << submission.name;
  }
  expect_untouched();
}

TEST_F(Hostile, NoSubmissionLeavesTheSandbox) {
  const Server server;
  const std::string secret = (handed_out_.teacher() / "secret").string();
  handed_out_.submit("mallory", kLab,
                     escape_attempts(handed_out_.solution(kLab), secret, victim_, server.port()));
  const nlohmann::json grade = handed_out_.grade().at("mallory");
  EXPECT_EQ(grade.at("points"), 100) << grade.dump(1);
  EXPECT_FALSE(is_running(kLeftBehind));
  expect_untouched();
}

TEST_F(Hostile, TheCompilerReachesNeitherTheSecretNorTheSolution) {
  const std::string path = (handed_out_.teacher() / "secret").string();
  std::string secret = read_text(path);
  secret.pop_back();
  ASSERT_EQ(secret.size(), 64u);
  const std::string solution = handed_out_.solution(kLab);
  handed_out_.submit("includes_it", kLab, "#include \"" + path + "\"\n" + solution);
  handed_out_.submit("assembles_it", kLab,
                     "asm(\".data\\n.incbin \\\"" + path + "\\\"\\n\");\n" + solution);
  handed_out_.submit("includes_the_solution", kLab,
                     "#include \"" LOCKSTEP_SOURCE
                     "/tutorials/labs/05_naive_all_reduce/naive_all_reduce.cpp\"\n");
  const nlohmann::json grades = handed_out_.grade();
  EXPECT_FALSE(grades.at("includes_the_solution").at("problem").is_null());
  EXPECT_THAT(grades.dump(), Not(HasSubstr(secret)));
  EXPECT_FALSE(grades.at("includes_it").at("problem").is_null());
  EXPECT_FALSE(grades.at("assembles_it").at("problem").is_null());
}

TEST_F(Hostile, ALinkIsNoSource) {
  const std::filesystem::path folder = handed_out_.submissions() / "mallory";
  std::filesystem::create_directory(folder);
  std::filesystem::create_symlink(handed_out_.teacher() / kLab / "naive_all_reduce.cpp",
                                  folder / "naive_all_reduce.cpp");
  const nlohmann::json grades = handed_out_.grade();
  EXPECT_EQ(grades.at("mallory").at("points"), 0);
  EXPECT_THAT(grades.at("mallory").at("problem").get<std::string>(), HasSubstr("no lab's source"));
}

}  // namespace
}  // namespace lockstep::testing
