#include "tools/nvml/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::nvml {
namespace {

constexpr int kNoProcess = 1 << 30;  // beyond the largest number that Linux gives

// A child that waits until it is ended.
class Child {
 public:
  Child() : pid_(fork()) {
    if (pid_ == 0) {
      pause();
      _exit(0);
    }
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  int pid() const { return pid_; }

 private:
  int pid_;
};

TEST(FindOwner, NamesUserAndCommand) {
  const auto owner = find_owner(getpid());
  ASSERT_TRUE(owner);
  const passwd* user = getpwuid(getuid());
  EXPECT_EQ(owner->user, user ? user->pw_name : std::to_string(getuid()));
  EXPECT_THAT(owner->command, ::testing::HasSubstr("nvml_tests"));
}

TEST(FindOwner, KnowsNothingOfAProcessThatIsNotThere) {
  EXPECT_FALSE(find_owner(kNoProcess));
}

TEST(AreRelatives, AreAncestorsAndDescendantsButNotSiblings) {
  const Child first;
  const Child second;
  EXPECT_TRUE(are_relatives(getpid(), getpid()));
  EXPECT_TRUE(are_relatives(first.pid(), getpid()));
  EXPECT_TRUE(are_relatives(getppid(), first.pid()));
  EXPECT_FALSE(are_relatives(first.pid(), second.pid()));
  EXPECT_FALSE(are_relatives(kNoProcess, getpid()));
}

}  // namespace
}  // namespace lockstep::nvml
