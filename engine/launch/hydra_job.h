// Which job a process belongs to that was started by Hydra, the mpirun of MPICH, Intel MPI and
// MVAPICH: its variables do not say, but its processes do. Every rank descends from a
// hydra_pmi_proxy, one for each host, whose command line names the port of the mpirun that it
// belongs to: the same on all hosts, and another one for another job.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>

#include "engine/launch/environment.h"

namespace lockstep::launch {

// Where current_environment() notes it, for who decides by the environment alone.
inline constexpr const char* kHydraJobVariable = "LOCKSTEP_HYDRA_JOB";

// "hydra_pmi_proxy --control-port node7:46515"; where a proxy's command line does not say, as that
// of Intel MPI, and all ranks are on this host, "hydra_pmi_proxy 4711 started at 78587". None when
// the variables are not those of Hydra, or no proxy is found.
// process: this one; proc: where the kernel describes processes.
std::optional<std::string> find_hydra_job(const Environment& environment, pid_t process,
                                          const std::filesystem::path& proc = "/proc");

}  // namespace lockstep::launch
