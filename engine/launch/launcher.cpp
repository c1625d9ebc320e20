#include "engine/launch/launcher.h"

#include <fmt/format.h>

#include "engine/launch/rank_environment.h"
#include "engine/runtime/cpu_cores.h"

namespace lockstep::launch {

Environment environment_of_rank(const LaunchOptions& options, int local_rank, int restart_count) {
  const std::string rank = std::to_string(options.node_rank * options.num_ranks + local_rank);
  const std::string world_size = std::to_string(options.num_nodes * options.num_ranks);
  Environment environment = options.environment;
  const auto set = [&](const char* name, const std::string& value) { environment[name] = value; };
  set("RANK", rank);
  set("WORLD_SIZE", world_size);
  set("LOCAL_RANK", std::to_string(local_rank));
  set("LOCAL_WORLD_SIZE", std::to_string(options.num_ranks));
  set("GROUP_RANK", std::to_string(options.node_rank));
  set("GROUP_WORLD_SIZE", std::to_string(options.num_nodes));
  set("ROLE_NAME", options.role);
  set("ROLE_RANK", rank);
  set("ROLE_WORLD_SIZE", world_size);
  set("MASTER_ADDR", options.master_address);
  set("MASTER_PORT", std::to_string(options.master_port));
  set("TORCHELASTIC_RUN_ID", options.run_id);
  set("TORCHELASTIC_RESTART_COUNT", std::to_string(restart_count));
  set("TORCHELASTIC_MAX_RESTARTS", std::to_string(options.max_restarts));
  // No agent listens on MASTER_PORT.
  set("TORCHELASTIC_USE_AGENT_STORE", "False");
  set("LOCKSTEP_LAUNCHER", "run");
  if (!options.token.empty()) set("LOCKSTEP_TOKEN", options.token);
  // An outer launcher's word about its own ranks does not hold for these.
  environment.erase(kBindVariable);
  environment.erase(kErrorFileVariable);
  if (!cores_of_rank(options, local_rank).empty()) set(kBindVariable, "core");
  if (options.num_ranks > 1 && !find_variable(environment, "OMP_NUM_THREADS")) {
    set("OMP_NUM_THREADS", "1");
  }
  return environment;
}

std::vector<int> cores_of_rank(const LaunchOptions& options, int local_rank) {
  if (options.binding == Binding::none) return {};
  return runtime::part_of_cores(runtime::allowed_cores(), static_cast<std::size_t>(local_rank),
                                static_cast<std::size_t>(options.num_ranks));
}

std::string log_path(const LaunchOptions& options, int restart_count, int local_rank, int stream) {
  return fmt::format("{}/attempt_{}/{}/{}.log", options.log_folder, restart_count, local_rank,
                     stream == 1 ? "stdout" : "stderr");
}

}  // namespace lockstep::launch
