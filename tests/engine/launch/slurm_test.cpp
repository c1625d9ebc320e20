// Slurm's notations for nodes and tasks.
#include "engine/launch/slurm.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace lockstep::launch {
namespace {

using Hosts = std::vector<std::string>;

TEST(SlurmNodeList, ReadsBracketsRangesAndWidths) {
  const auto parse = [](const char* text) { return parse_node_list("LIST", text); };
  EXPECT_EQ(parse("node7"), Hosts({"node7"}));
  EXPECT_EQ(parse("node[003-005,010]"), Hosts({"node003", "node004", "node005", "node010"}));
  EXPECT_EQ(parse("a,b[1-2],c"), Hosts({"a", "b1", "b2", "c"}));
  EXPECT_EQ(parse("r[1-2]n[08-09].lan"),
            Hosts({"r1n08.lan", "r1n09.lan", "r2n08.lan", "r2n09.lan"}));
  EXPECT_EQ(parse("n[9-11]"), Hosts({"n9", "n10", "n11"}));
}

TEST(SlurmNodeList, RefusesWhatDoesNotFollowTheNotation) {
  for (const char* text : {"", ",", "n[", "n[]", "n[1", "n[1-]", "n[2-1]", "n]", "n[a]", "n,",
                           "n[1-999999999]", "n[0-9999][0-9999]"}) {
    testing::expect_error(ErrorCode::Usage, "[LIST]", [&] { parse_node_list("LIST", text); });
  }
}

TEST(SlurmTasksPerNode, CountsThroughRepetitions) {
  const auto tasks = [](int node) { return tasks_on_node("TASKS", "2(x3),1", node); };
  EXPECT_EQ(tasks(0), 2);
  EXPECT_EQ(tasks(2), 2);
  EXPECT_EQ(tasks(3), 1);
  EXPECT_EQ(tasks(4), std::nullopt);
  for (const char* text : {"", "x", "2(x", "2(x0)", "2(x3", "2,,1"}) {
    testing::expect_error(ErrorCode::Usage, "[TASKS]", [&] { tasks_on_node("TASKS", text, 9); });
  }
}

}  // namespace
}  // namespace lockstep::launch
