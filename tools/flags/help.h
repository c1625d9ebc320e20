// The text of --help: a command's flags in groups, their values as people write them, and no line
// wider than 80 columns, or than a narrower terminal.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace lockstep::tools {

// Flags that stand together in --help, under a title.
struct FlagGroup {
  std::string title;
  std::vector<std::string> flags;  // in this order; names that the command lacks are left out
};

// Prints the command's flags in these groups. A flag stands in the first group that names it; flags
// that none names come last. Without groups, the flags stand in the order in which they were added.
// Commands that are added to it later print their help in the same way, without groups.
void group_flags(CLI::App& command, std::vector<FlagGroup> groups);

}  // namespace lockstep::tools
