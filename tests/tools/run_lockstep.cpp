#include "tests/tools/run_lockstep.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>

namespace lockstep::testing {
Outcome run_lockstep(const Arguments& arguments, const std::filesystem::path& folder) {
  const TempFolder outputs;
  const std::string out = (outputs / "out").string();
  const std::string err = (outputs / "err").string();
  std::vector<std::string> words = arguments;
  std::vector<char*> argv{const_cast<char*>(LOCKSTEP_PROGRAM)};
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t process = ::fork();
  if (process == 0) {
    constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    ::dup2(::open(out.c_str(), kFlags, 0600), STDOUT_FILENO);
    ::dup2(::open(err.c_str(), kFlags, 0600), STDERR_FILENO);
    if (::chdir(folder.c_str()) == 0) ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  int status = 0;
  if (::waitpid(process, &status, 0) != process) throw std::runtime_error("waitpid failed");
  Outcome outcome;
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.out = read_text(out);
  outcome.err = read_text(err);
  return outcome;
}

Outcome run_lockstep(const Arguments& arguments) {
  const TempFolder folder;
  return run_lockstep(arguments, folder.path());
}

Arguments words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>()};
}

void expect_success(const Outcome& outcome) {
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
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

std::string weights_digest(const Outcome& outcome) {
  const std::string key = "weights sha256: ";
  const std::size_t begin = outcome.out.find(key);
  if (begin == std::string::npos) return {};
  return outcome.out.substr(begin + key.size(), 64);
}

nlohmann::json read_json(const std::filesystem::path& path) {
  return nlohmann::json::parse(read_text(path));
}

}  // namespace lockstep::testing
