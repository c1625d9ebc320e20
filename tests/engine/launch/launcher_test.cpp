// Tests the parts of the launcher. tests/tools/run_*_test.cpp test how it runs, ends and logs
// ranks.
#include "engine/launch/launcher.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/launch/output.h"
#include "engine/launch/process.h"
#include "tests/support/temp_folder.h"

namespace lockstep::launch {
namespace {

LaunchOptions second_node_of_two() {
  LaunchOptions options;
  options.environment = {{"HOME", "/root"}, {"RANK", "77"}};
  options.num_ranks = 4;
  options.num_nodes = 2;
  options.node_rank = 1;
  options.master_address = "10.0.0.1";
  options.master_port = 29500;
  options.token = "secret";
  options.run_id = "job";
  options.binding = Binding::none;
  options.max_restarts = 3;
  return options;
}

TEST(EnvironmentOfRank, HoldsTorchrunsVariables) {
  const Environment environment = environment_of_rank(second_node_of_two(), 2, 1);
  const Environment expected = {{"HOME", "/root"},
                                {"RANK", "6"},
                                {"WORLD_SIZE", "8"},
                                {"LOCAL_RANK", "2"},
                                {"LOCAL_WORLD_SIZE", "4"},
                                {"GROUP_RANK", "1"},
                                {"GROUP_WORLD_SIZE", "2"},
                                {"ROLE_NAME", "default"},
                                {"ROLE_RANK", "6"},
                                {"ROLE_WORLD_SIZE", "8"},
                                {"MASTER_ADDR", "10.0.0.1"},
                                {"MASTER_PORT", "29500"},
                                {"OMP_NUM_THREADS", "1"},
                                {"TORCHELASTIC_RUN_ID", "job"},
                                {"LOCKSTEP_TOKEN", "secret"},
                                {"TORCHELASTIC_RESTART_COUNT", "1"},
                                {"LOCKSTEP_LAUNCHER", "run"},
                                {"TORCHELASTIC_MAX_RESTARTS", "3"},
                                {"TORCHELASTIC_USE_AGENT_STORE", "False"}};
  EXPECT_EQ(environment, expected);
}

TEST(EnvironmentOfRank, ThreadsAreLimitedOnlyWhereSeveralRanksShareTheHost) {
  LaunchOptions options = second_node_of_two();
  options.environment["OMP_NUM_THREADS"] = "7";
  EXPECT_EQ(environment_of_rank(options, 0, 0)["OMP_NUM_THREADS"], "7");
  options.environment["OMP_NUM_THREADS"] = "";
  EXPECT_EQ(environment_of_rank(options, 0, 0)["OMP_NUM_THREADS"], "1");
  options.environment.erase("OMP_NUM_THREADS");
  options.num_ranks = 1;
  EXPECT_FALSE(environment_of_rank(options, 0, 0).contains("OMP_NUM_THREADS"));
}

using Texts = std::vector<std::string>;

Texts split(const Texts& pieces) {
  Texts lines;
  LineSplitter splitter;
  const auto collect = [&](std::string_view line) { lines.emplace_back(line); };
  for (const std::string& piece : pieces) splitter.add(piece, collect);
  splitter.finish(collect);
  return lines;
}

TEST(LineSplitter, PutsLinesTogetherHoweverTheyArrive) {
  EXPECT_EQ(split({"one\ntw", "", "o\n\nthree"}), Texts({"one", "two", "", "three"}));
}

TEST(LineSplitter, ShowsProgressThatOverwritesItself) {
  EXPECT_EQ(split({"\r10 %", "\r20 %\r", "\ndone\r\n", "\r\n"}),
            Texts({"10 %", "20 %", "done", ""}));
}

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
  const ProcessTree tree;
  const pid_t orphan = start_orphan_in_own_session();
  EXPECT_EQ(tree.find(), std::vector<pid_t>{orphan});
  EXPECT_EQ(tree.kill(), 0u);
  EXPECT_TRUE(tree.find().empty());
  EXPECT_EQ(::kill(orphan, 0), -1);
}

}  // namespace
}  // namespace lockstep::launch
