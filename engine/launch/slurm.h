// The two notations in which Slurm's variables name several nodes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

// "node[003-005,010],login1" as {"node003", "node004", "node005", "node010", "login1"}; several
// brackets in a name multiply. Width and leading zeros are kept.
// Throws Error{Usage} that names the variable when the text does not follow the notation, or names
// more than 65536 hosts.
std::vector<std::string> parse_node_list(std::string_view variable, std::string_view text);

// How many tasks run on node `node` by "2(x3),1", which means 2, 2, 2, 1; none beyond the last.
// Throws Error{Usage} that names the variable.
std::optional<int> tasks_on_node(std::string_view variable, std::string_view text, int node);

}  // namespace lockstep::launch
