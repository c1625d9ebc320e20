// --help, and the width of what the small commands print.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

struct Group {
  std::string title;
  std::vector<std::string> flags;  // the first name of each
};

// The groups of flags, and a group of commands if there are some.
std::vector<Group> groups_of(const std::string& help) {
  std::vector<Group> groups;
  bool is_after_gap = false;
  for (const std::string& line : lines_of(help)) {
    const bool is_entry = line.starts_with("  ") && line.size() > 2 && line[2] != ' ';
    if (is_after_gap && !line.empty() && line[0] != ' ') groups.push_back({line, {}});
    if (is_entry && !groups.empty()) {
      groups.back().flags.push_back(line.substr(2, line.find_first_of(" ,", 2) - 2));
    }
    is_after_gap = line.empty();
  }
  return groups;
}

std::string help_of(const std::string& command) {
  const std::string out = run_well(command + " --help");
  return out;
}

// Every command, such as "bench step", below one.
std::vector<std::string> commands_below(const std::string& parent) {
  std::vector<std::string> commands;
  for (const Group& group : groups_of(help_of(parent))) {
    if (group.title != "Commands") continue;
    for (const std::string& name : group.flags) {
      const std::string command = parent.empty() ? name : parent + " " + name;
      commands.push_back(command);
      for (const std::string& below : commands_below(command)) commands.push_back(below);
    }
  }
  return commands;
}

TEST(Help, OfEveryCommandFitsIn80ColumnsAndNamesValuesAsPeopleWriteThem) {
  std::vector<std::string> commands = commands_below("");
  EXPECT_GT(commands.size(), 15u);
  commands.push_back("");
  for (const std::string& command : commands) {
    SCOPED_TRACE(command);
    const std::string help = help_of(command);
    expect_narrow(help);
    EXPECT_THAT(help, HasSubstr("usage: lockstep"));
    for (const char* word :
         {" TEXT:", " INT", " FLOAT", "Excludes", "Needs:", "Other flags", "[]"}) {
      EXPECT_THAT(help, Not(HasSubstr(word)));
    }
  }
}

TEST(Help, OfLongCommandsHasTenCommonFlagsFirstAndTheOthersInGroups) {
  for (const char* command : {"train", "compare", "run", "bench all-reduce", "predict"}) {
    SCOPED_TRACE(command);
    const std::vector<Group> groups = groups_of(help_of(command));
    ASSERT_GE(groups.size(), 3u);
    EXPECT_EQ(groups[0].title, "Most used");
    EXPECT_THAT(groups[0].flags, SizeIs(10));
  }
  std::vector<std::string> titles;
  std::size_t num_flags = 0;
  for (const Group& group : groups_of(help_of("bench step"))) {
    titles.push_back(group.title);
    num_flags += group.flags.size();
  }
  EXPECT_EQ(num_flags, 12u);
  EXPECT_THAT(titles, ElementsAre("What to train", "On what", "How fast", "What to count",
                                  "What to write"));
}

TEST(Help, OfTrainSaysChoicesAndDefaults) {
  const std::string help = help_of("train");
  EXPECT_THAT(help, HasSubstr("--optimizer sgd|adamw   the rule that updates the weights (default: "
                              "sgd)"));
  EXPECT_THAT(help, HasSubstr("--augment crop|flip|crop,flip\n"));
  EXPECT_THAT(help, HasSubstr("--save FILE "));
}

// Commands whose lines were wider, and whose output is quick to make.
TEST(Output, OfTheSmallCommandsFitsIn80Columns) {
  const std::string net = "predict --params 25.6M --step 0.1 --batch-per-gpu 64 --topology ";
  for (const std::string& command : {
           std::string("env"),
           std::string("devices"),
           std::string("plan scatter --rows 1000000 --devices 64"),
           std::string("plan buckets --model resnet18"),
           std::string("plan all-reduce --plan ring --ranks 8"),
           std::string("plan all-reduce --plan tree --ranks 8"),
           std::string("plan all-reduce --plan halving-doubling --ranks 8"),
           std::string("plan all-reduce --plan one-shot --ranks 8"),
           std::string("plan all-reduce --plan two-shot --ranks 8"),
           std::string("plan all-reduce --plan reduce-broadcast --ranks 8"),
           std::string(
               "plan all-reduce --plan hierarchical --ranks 16 --hosts 4 --elements 9999999"),
           net + "dgx-a100",
           net + "dgx-a100*64@100gbe --devices 1,8,512 --strategy ddp,hierarchical,zero3",
           net + "dgx-a100 --devices 2,8 --strategy "
                 "device_allreduce,device_parameter_server,nccl_replicated,cpu_reduce,cpu_"
                 "parameter_server",
           net + "dgx1-p100 --what-if batch=64,256 --what-if bandwidth=2x --devices 2,4",
           std::string("predict --model gpt2-xl --batch-per-gpu 8 --topology hgx-h100-8"),
           std::string("predict --all-reduce 1G --topology hgx-h200-8"),
           std::string("bench step --model mlp:784-256-128-10,mlp:8-2 --batch 64 --seconds 0.001"),
           std::string("bench step --model resnet18:4 --batch 2 --memory --seconds 0.001"),
           std::string("bench all-reduce -b 16K -e 1M -n 1 -w 0 -c --link 50us,1GB/s"),
           std::string("bench all-reduce -b 4K -e 4K -n 1 -d bfloat16 --plan halving-doubling"),
           std::string(
               "train --steps 3 --parallel ddp --devices 2 --ranks processes --link 1us,1GB/s"),
           std::string("train --steps 3 --dataset embedded-text --model gpt:1-2-16-16"),
           std::string("train --parallel ddp --devices 8 --steps 2"),
           std::string("compare --model mlp:64-64-10 --steps 2 --devices 1,2,8"),
           std::string("compare --steps 2 --devices 1,2,8 --batch 3 --sampler torch --modes dp"),
       }) {
    SCOPED_TRACE(command);
    const Outcome outcome = run_command(command);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    expect_narrow(outcome.out);
  }
}

TEST(Output, OfCompareIsWiderIfAskedFor) {
  const std::string table = run_well("compare --model mlp:64-10 --steps 2 --devices 2 --wide");
  EXPECT_THAT(table, HasSubstr("accuracy"));
  EXPECT_THAT(lines_of(table), Contains(SizeIs(Gt(80u))));
}

TEST(Output, RowsOfHierarchicalPredictionsAreOneLineEach) {
  const std::string out = run_well(
      "predict --params 25.6M --step 0.1 --batch-per-gpu 64 --topology dgx-a100*4@100gbe "
      "--devices 32 --strategy hierarchical");
  EXPECT_THAT(out, ::testing::ContainsRegex("\nhierarchical +32 +[0-9]+ "));
  EXPECT_THAT(out, ::testing::ContainsRegex("\nsingle .* 0 B +0 %\n"));
}

}  // namespace
}  // namespace lockstep::testing
