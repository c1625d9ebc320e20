#include "engine/launch/slurm_step.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <vector>

#include "engine/core/error.h"
#include "engine/launch/slurm.h"

namespace lockstep::launch {
namespace {

// Slurm's reserved numbers of steps are the six largest of 32 bits.
constexpr std::uint64_t kFirstReservedStep = 0xFFFFFFFA;

}  // namespace

bool is_inside_slurm_step(const Environment& environment) {
  const auto text = find_variable(environment, "SLURM_STEP_ID");
  if (!text) return false;
  std::uint64_t id = 0;
  const char* const end = text->data() + text->size();
  const auto [rest, problem] = std::from_chars(text->data(), end, id);
  require(problem == std::errc{} && rest == end, ErrorCode::Usage, "SLURM_STEP_ID",
          "expected the number of a step in this environment variable, found '{}'", *text);
  return id < kFirstReservedStep;
}

SlurmHosts find_slurm_hosts(const Environment& environment, int world_size) {
  SlurmHosts found;
  bool is_known = false;
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"}) {
    const auto list = find_variable(environment, name);
    if (!list) continue;
    const std::vector<std::string> hosts = parse_node_list(name, *list);
    found.first_host = hosts.front();
    found.first_host_from = fmt::format("the first host of {}", name);
    found.hosts = hosts.size() == 1 ? Hosts::one : Hosts::several;
    is_known = true;
    break;
  }
  if (!is_known) {
    const int num_nodes = find_number(environment, "SLURM_NNODES").value_or(0);
    require(num_nodes == 1 || find_variable(environment, "MASTER_ADDR").has_value(),
            ErrorCode::Usage, "SLURM_NODELIST",
            "this environment variable is missing, so the ranks cannot know where to meet; set it, "
            "or MASTER_ADDR");
    found.hosts = num_nodes == 1 ? Hosts::one : Hosts::several;
  }
  if (found.hosts == Hosts::one) {
    found.local_world_size = world_size;
    found.local_world_size_from = "the world size, since all are on one host";
    return found;
  }
  const auto node = find_number(environment, "SLURM_NODEID");
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    const auto text = find_variable(environment, name);
    if (!text || !node || found.local_world_size != 0) continue;
    found.local_world_size = tasks_on_node(name, *text, *node).value_or(0);
    found.local_world_size_from = name;
  }
  return found;
}

}  // namespace lockstep::launch
