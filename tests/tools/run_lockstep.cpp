#include "tests/tools/run_lockstep.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>

namespace lockstep::testing {
namespace {

// The actions that send the program's output to files and start it in a folder.
class SpawnActions {
 public:
  SpawnActions(const std::filesystem::path& folder, const std::filesystem::path& out,
               const std::filesystem::path& err) {
    posix_spawn_file_actions_init(&actions_);
    constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&actions_, STDOUT_FILENO, out.c_str(), kFlags, 0600);
    posix_spawn_file_actions_addopen(&actions_, STDERR_FILENO, err.c_str(), kFlags, 0600);
    posix_spawn_file_actions_addchdir_np(&actions_, folder.c_str());
  }
  ~SpawnActions() { posix_spawn_file_actions_destroy(&actions_); }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;

  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

int wait_for(pid_t process) {
  int status = 0;
  if (::waitpid(process, &status, 0) != process) throw std::runtime_error("waitpid failed");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Outcome run_lockstep(const Arguments& arguments, const std::filesystem::path& folder) {
  const TempFolder outputs;
  const SpawnActions actions(folder, outputs / "out", outputs / "err");
  std::string program = LOCKSTEP_PROGRAM;
  std::vector<std::string> words = arguments;
  std::vector<char*> argv{program.data()};
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t process = 0;
  if (::posix_spawnp(&process, program.c_str(), actions.get(), nullptr, argv.data(), environ) !=
      0) {
    throw std::runtime_error("cannot start " + program);
  }
  Outcome outcome;
  outcome.exit_code = wait_for(process);
  outcome.out = read_text(outputs / "out");
  outcome.err = read_text(outputs / "err");
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
