// lockstep env: what a bug report needs: versions, build, machine, and the variables that matter.
#include <fmt/format.h>

#include <array>
#include <cstdlib>

#include "engine/runtime/logical_device.h"
#include "tools/commands.h"
#include "tools/report/host_info.h"

namespace lockstep::tools {
namespace {

// Variables that Lockstep reads, and those of launchers that say who this process is.
constexpr std::array<const char*, 9> kVariables = {
    "LOCKSTEP_LOG",        "RANK",        "LOCAL_RANK",  "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",    "MASTER_ADDR", "MASTER_PORT", "LOCKSTEP_VIRTUAL_DEVICES",
    "CUDA_VISIBLE_DEVICES"};

void run_env() {
  const nlohmann::ordered_json host = host_info();
  for (const char* key : {"version", "build", "os", "cpu"}) {
    fmt::print("{:<26}{}\n", key, host[key].get<std::string>());
  }
  fmt::print("{:<26}{}\n", "cores", runtime::num_cores());
  fmt::print("{:<26}{:.1f} GiB\n", "memory",
             host["memory_bytes"].get<double>() / (std::size_t{1} << 30));
  fmt::print("{:<26}{}\n", "cuda",
             runtime::num_devices(DeviceType::cuda) > 0 ? "yes" : "not built in");
  fmt::print("{:<26}own (thread)\n", "communication");
  for (const char* name : kVariables) {
    const char* value = std::getenv(name);
    const bool is_set = value && *value;  // empty counts as unset
    fmt::print("{:<26}{}\n", name, is_set ? value : "(unset)");
  }
}

}  // namespace

void add_env_command(CLI::App& app) {
  app.add_subcommand("env", "Print versions, build, machine and environment")->callback(run_env);
}

}  // namespace lockstep::tools
