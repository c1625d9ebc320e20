#include "engine/launch/launcher_family.h"

#include <vector>

#include "engine/launch/slurm_step.h"

namespace lockstep::launch {
namespace {

constexpr LauncherFamily kRankFamily = {
    .launcher = Launcher::by_hand,
    .rank = {"RANK"},
    .size = {"WORLD_SIZE"},
    .local_rank = {"LOCAL_RANK"},
    .local_size = {"LOCAL_WORLD_SIZE"},
    .node_rank = {"GROUP_RANK"},
};
constexpr LauncherFamily kOpenMpiFamily = {
    .launcher = Launcher::open_mpi,
    .rank = {"OMPI_COMM_WORLD_RANK"},
    .size = {"OMPI_COMM_WORLD_SIZE"},
    .local_rank = {"OMPI_COMM_WORLD_LOCAL_RANK"},
    .local_size = {"OMPI_COMM_WORLD_LOCAL_SIZE"},
    .node_rank = {},
};
constexpr LauncherFamily kPmiFamily = {
    .launcher = Launcher::pmi,
    .rank = {"PMI_RANK"},
    .size = {"PMI_SIZE"},
    .local_rank = {"MPI_LOCALRANKID"},
    .local_size = {"MPI_LOCALNRANKS"},
    .node_rank = {},
};
constexpr LauncherFamily kMvapichFamily = {
    .launcher = Launcher::mvapich,
    .rank = {"MV2_COMM_WORLD_RANK"},
    .size = {"MV2_COMM_WORLD_SIZE"},
    .local_rank = {"MV2_COMM_WORLD_LOCAL_RANK"},
    .local_size = {"MV2_COMM_WORLD_LOCAL_SIZE"},
    .node_rank = {},
};
// How many tasks a node has is in a notation of its own: slurm_step.h.
constexpr LauncherFamily kSlurmFamily = {
    .launcher = Launcher::slurm,
    .rank = {"SLURM_PROCID"},
    .size = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
    .local_rank = {"SLURM_LOCALID"},
    .local_size = {},
    .node_rank = {"SLURM_NODEID"},
};

bool is_complete(const Environment& environment, const LauncherFamily& family) {
  return first_set(environment, family.rank) && first_set(environment, family.size);
}

bool has_begun(const Environment& environment, const LauncherFamily& family) {
  return first_set(environment, family.rank) || first_set(environment, family.size);
}

}  // namespace

const char* first_set(const Environment& environment, const VariableNames& names) {
  for (const char* name : names) {
    if (name && find_variable(environment, name)) return name;
  }
  return nullptr;
}

const LauncherFamily* choose_family(const Environment& environment) {
  const bool in_step = is_inside_slurm_step(environment);
  // srun can speak PMI to its tasks, but only an mpirun sets the local rank of this family.
  const bool is_pmi_of_srun = in_step && !first_set(environment, kPmiFamily.local_rank);
  std::vector<const LauncherFamily*> families{&kRankFamily, &kOpenMpiFamily};
  if (!is_pmi_of_srun) families.push_back(&kPmiFamily);
  families.push_back(&kMvapichFamily);
  if (in_step) families.push_back(&kSlurmFamily);
  for (const LauncherFamily* family : families) {
    if (is_complete(environment, *family)) return family;
  }
  if (in_step) return &kSlurmFamily;
  for (const LauncherFamily* family : families) {
    if (has_begun(environment, *family)) return family;
  }
  return nullptr;
}

std::string_view to_string(Launcher launcher) {
  switch (launcher) {
    case Launcher::alone:
      return "alone";
    case Launcher::by_hand:
      return "by hand";
    case Launcher::lockstep:
      return "lockstep run";
    case Launcher::torchrun:
      return "torchrun";
    case Launcher::open_mpi:
      return "mpirun (Open MPI)";
    case Launcher::pmi:
      return "mpirun (MPICH, Intel MPI)";
    case Launcher::mvapich:
      return "mpirun (MVAPICH2)";
    case Launcher::slurm:
      return "srun";
  }
  return "unknown";
}

}  // namespace lockstep::launch
