#include "engine/launch/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "tests/support/temp_folder.h"

namespace lockstep::launch {
namespace {

TEST(ErrorFile, IsWhatTorchsRecordWrites) {
  const testing::TempFolder folder;
  const auto path = folder / "error.json";
  write_error_file({{kErrorFileVariable, path.string()}}, "lockstep: [load] \"a\" is no file");
  const auto message = nlohmann::json::parse(testing::read_text(path)).at("message");
  EXPECT_EQ(message.at("message"), "lockstep: [load] \"a\" is no file");
  EXPECT_EQ(message.at("extraInfo").at("py_callstack"), message.at("message"));
  EXPECT_TRUE(message.at("extraInfo").at("timestamp").is_string());
}

// A child whose own child has left for a session of its own and whose parent has ended.
pid_t start_orphan_in_own_session() {
  int ends[2];
  if (::pipe(ends) != 0) return -1;
  const pid_t child = ::fork();
  if (child == 0) {
    const pid_t grandchild = ::fork();
    if (grandchild == 0) {
      ::setsid();
      for (;;) ::pause();
    }
    (void)!::write(ends[1], &grandchild, sizeof grandchild);
    ::_exit(0);
  }
  pid_t grandchild = -1;
  (void)!::read(ends[0], &grandchild, sizeof grandchild);
  ::waitpid(child, nullptr, 0);
  ::close(ends[0]);
  ::close(ends[1]);
  return grandchild;
}

TEST(ProcessTree, OrphansAreAdoptedFoundAndEnded) {
  const bool adopted_before = adopt_orphans(true);
  const pid_t orphan = start_orphan_in_own_session();
  EXPECT_EQ(find_descendants(), std::vector<pid_t>{orphan});
  EXPECT_EQ(kill_descendants(), 0u);
  EXPECT_TRUE(find_descendants().empty());
  EXPECT_EQ(::kill(orphan, 0), -1);
  adopt_orphans(adopted_before);
}

}  // namespace
}  // namespace lockstep::launch
