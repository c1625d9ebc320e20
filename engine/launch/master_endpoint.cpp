#include "engine/launch/master_endpoint.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/core/error.h"
#include "engine/launch/hydra_job.h"

namespace lockstep::launch {
namespace {

// Ports that are nobody's default.
constexpr int kFirstJobPort = 15000;
constexpr std::uint32_t kNumJobPorts = 10000;

// The same for all ranks of a job, and hardly the same for two jobs. FNV-1a.
int port_of_job(std::string_view job_id) {
  std::uint32_t hash = 2166136261u;
  for (const char c : job_id) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return kFirstJobPort + static_cast<int>(hash % kNumJobPorts);
}

// Variables that a launcher sets to the name of the job. MPIRUN_ID: MVAPICH2's mpirun_rsh.
std::vector<const char*> names_of_job(Launcher launcher) {
  if (launcher == Launcher::slurm) return {"SLURM_JOB_ID", "SLURM_JOBID"};
  if (launcher == Launcher::mvapich) return {"PMI_JOBID", "MPIRUN_ID", kHydraJobVariable};
  return {"PMIX_NAMESPACE", "PMI_JOBID", kHydraJobVariable};
}

// None when there is no such variable.
std::optional<MasterPort> find_port_of_job(const Environment& environment, Launcher launcher) {
  for (const std::string_view name : names_of_job(launcher)) {
    auto id = find_variable(environment, name);
    if (!id) continue;
    if (launcher == Launcher::slurm)
      id->append(".").append(*find_variable(environment, "SLURM_STEP_ID"));
    return MasterPort{port_of_job(*id),
                      fmt::format("made of {}", name == kHydraJobVariable ? *id : name)};
  }
  return std::nullopt;
}

}  // namespace

MasterAddress decide_master_address(const Environment& environment, const LauncherFamily& family,
                                    Hosts hosts, const SlurmHosts& slurm) {
  if (const auto address = find_variable(environment, "MASTER_ADDR")) {
    return {*address, "MASTER_ADDR"};
  }
  if (!slurm.first_host.empty()) return {slurm.first_host, slurm.first_host_from};
  require(hosts == Hosts::one, ErrorCode::Usage, "MASTER_ADDR",
          "this environment variable is missing; with ranks on several hosts it says on which host "
          "rank 0 runs{}",
          family.launcher == Launcher::open_mpi ? " (mpirun -x MASTER_ADDR=HOST)" : "");
  return {"127.0.0.1", "default: all ranks are on one host"};
}

MasterPort decide_master_port(const Environment& environment, const LauncherFamily& family) {
  MasterPort master{kDefaultMasterPort, "default"};
  if (const auto port = find_number(environment, "MASTER_PORT")) {
    master = {*port, "MASTER_PORT"};
  } else if (family.launcher != Launcher::by_hand) {
    master = find_port_of_job(environment, family.launcher).value_or(master);
  }
  std::int64_t port = master.port;
  if (find_variable(environment, "TORCHELASTIC_USE_AGENT_STORE") == "True") {
    port += 1 + std::int64_t{find_number(environment, "TORCHELASTIC_RESTART_COUNT").value_or(0)};
    master.from +=
        " + 1 + TORCHELASTIC_RESTART_COUNT: torchrun's agent listens on MASTER_PORT itself";
  }
  require(port >= 1 && port <= 65535, ErrorCode::Usage, "MASTER_PORT",
          "expected a port from 1 to 65535, found {}", port);
  master.port = static_cast<int>(port);
  return master;
}

}  // namespace lockstep::launch
