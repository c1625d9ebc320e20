#include "tests/tools/run_lockstep.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <sstream>
#include <thread>

namespace lockstep::testing {
namespace {

std::string new_mark() {
  static std::atomic<int> count{0};
  return "LOCKSTEP_TEST_MARK=" + std::to_string(::getpid()) + "." + std::to_string(++count) + ".";
}

std::vector<std::string> environment_with(const Variables& variables, const std::string& mark) {
  std::vector<std::string> result{mark};
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    if (!variables.contains(text.substr(0, text.find('=')))) result.push_back(text);
  }
  for (const auto& [name, value] : variables) {
    if (!value.empty()) result.push_back(name + "=" + value);
  }
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

// Zombies have no environment any more, so they don't count.
std::vector<pid_t> marked_processes(const std::string& mark) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (read_text(entry.path() / "environ").find(mark) != std::string::npos) {
      found.push_back(std::stoi(name));
    }
  }
  return found;
}

}  // namespace

Outcome run_lockstep(const Arguments& arguments, const std::filesystem::path& folder) {
  Arguments words{LOCKSTEP_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return MarkedProgram(words, {}, folder).wait();
}

Outcome run_command(const std::string& command, const std::filesystem::path& folder,
                    const Variables& variables) {
  return MarkedProgram(words(LOCKSTEP_PROGRAM " " + command), variables, folder).wait();
}

Arguments words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>()};
}

void expect_success(const Outcome& outcome) {
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
}

std::string run_well(const std::string& command, const std::filesystem::path& folder) {
  SCOPED_TRACE(command);
  const Outcome outcome = run_command(command, folder);
  expect_success(outcome);
  return outcome.out;
}

nlohmann::json run_file_of(const std::string& command) {
  const TempFolder folder;
  run_well(command + " --json run.json", folder.path());
  return read_json(folder / "run.json");
}

void expect_rejected(const Outcome& outcome, int exit_code,
                     const std::vector<std::string>& phrases) {
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.out;
  EXPECT_THAT(outcome.err, ::testing::StartsWith("lockstep: "));
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_THAT(outcome.err, ::testing::EndsWith("\n"));
  for (const std::string& phrase : phrases) {
    EXPECT_THAT(outcome.err, ::testing::HasSubstr(phrase));
  }
  EXPECT_THAT(outcome.out, ::testing::Not(::testing::HasSubstr("epoch 1")));
}

std::string weights_digest(const std::string& out) {
  const std::string key = "weights sha256: ";
  const std::size_t begin = out.find(key);
  return begin == std::string::npos ? "" : out.substr(begin + key.size(), 64);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::size_t count_of(const std::string& text, const std::string& word) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; ++at) ++found;
  return found;
}

void expect_narrow(const std::string& text) {
  for (const std::string& line : lines_of(text)) EXPECT_LE(line.size(), 80u) << line;
}

nlohmann::json read_json(const std::filesystem::path& path) {
  return nlohmann::json::parse(read_text(path));
}

MarkedProgram::MarkedProgram(const Arguments& arguments, const Variables& variables,
                             const std::filesystem::path& folder)
    : mark_(new_mark()) {
  std::vector<std::string> words = arguments;
  std::vector<std::string> environment = environment_with(variables, mark_);
  const std::vector<char*> argv = pointers(words);
  const std::vector<char*> envp = pointers(environment);
  const std::string out = (folder_ / "out").string();
  const std::string err = (folder_ / "err").string();
  process_ = ::fork();
  if (process_ == 0) {
    constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_APPEND;
    ::dup2(::open(out.c_str(), kFlags, 0600), STDOUT_FILENO);
    ::dup2(::open(err.c_str(), kFlags, 0600), STDERR_FILENO);
    if (::chdir((folder.empty() ? folder_.path() : folder).c_str()) != 0) ::_exit(126);
    ::execvpe(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
}

MarkedProgram::~MarkedProgram() {
  for (const pid_t process : marked_processes(mark_)) ::kill(process, SIGKILL);
  if (!has_ended_) ::waitpid(process_, nullptr, 0);
}

void MarkedProgram::send(int signal) const {
  ::kill(process_, signal);
}

Outcome MarkedProgram::wait() {
  int status = 0;
  ::waitpid(process_, &status, 0);
  has_ended_ = true;
  Outcome outcome;
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.out = out();
  outcome.err = read_text(folder_ / "err");
  return outcome;
}

std::string MarkedProgram::out() const {
  return read_text(folder_ / "out");
}

std::vector<pid_t> MarkedProgram::alive() const {
  std::vector<pid_t> found = marked_processes(mark_);
  std::ranges::sort(found);
  return found;
}

bool wait_until(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(240);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

Arguments run_script(const std::string& flags, const std::string& script) {
  Arguments arguments = words(std::string(LOCKSTEP_PROGRAM) + " run " + flags);
  arguments.insert(arguments.end(), {"--", "sh", "-c", script});
  return arguments;
}

}  // namespace lockstep::testing
