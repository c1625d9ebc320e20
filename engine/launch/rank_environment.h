// This process's rank, and where the ranks of its job meet: one pure function of the
// environment decides, for every launcher.
//
// The first complete family of variables wins; rank and size come from the same one:
//   RANK, WORLD_SIZE                              lockstep run, torchrun, or set by hand
//   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK      mpirun of Open MPI
//   PMI_RANK, PMI_SIZE, MPI_LOCALRANKID           mpirun of MPICH and Intel MPI
//   MV2_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK       mpirun of MVAPICH2
//   SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID     srun: only inside a step (SLURM_STEP_ID), since a
//                                                 shell in an allocation has SLURM_NTASKS too
//   none of them                                  alone: rank 0 of 1
// An empty variable counts as unset.
//
// The ranks meet at MASTER_ADDR and MASTER_PORT, whatever the family. Without them they meet at
// 127.0.0.1 if all ranks are on one host, and at port 29500. If mpirun or srun name the job, the
// port is made from that name instead, so that two jobs of one host have different ports.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/core/device.h"
#include "engine/launch/process.h"

namespace lockstep::launch {

inline constexpr int kDefaultMasterPort = 29500;
inline constexpr int kMaxWorldSize = 4096;

enum class Launcher { alone, by_hand, lockstep, torchrun, open_mpi, pmi, mvapich, slurm };

// "alone", "by hand", "lockstep run", "torchrun", "mpirun (Open MPI)", ..., "srun".
std::string_view to_string(Launcher launcher);

// one: all ranks are on this host, so they meet on its loopback.
enum class Hosts { one, several };

// One decision and its source: {"local rank", "1", "OMPI_COMM_WORLD_LOCAL_RANK"}.
struct Origin {
  std::string what;
  std::string value;
  std::string from;
};

struct RankEnvironment {
  Launcher launcher = Launcher::alone;
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;  // 0: the environment does not say; join_job counts
  Hosts hosts = Hosts::one;
  std::string master_address = "127.0.0.1";
  // The port of rank 0's store. Under a torchrun whose agent listens on MASTER_PORT itself
  // (TORCHELASTIC_USE_AGENT_STORE=True): MASTER_PORT + 1 + TORCHELASTIC_RESTART_COUNT.
  int master_port = kDefaultMasterPort;
  std::string job_id;           // the launcher's name for the job; may be empty
  std::vector<Origin> origins;  // ordered as the fields above
};

// Throws Error{Usage} that names the variable if one of a family is missing, a value is not a
// number, or two contradict each other (RANK >= WORLD_SIZE, LOCAL_RANK >= LOCAL_WORLD_SIZE, ...).
RankEnvironment rank_environment(const Environment& environment);

// True for names of the loopback: "localhost", "127.x.y.z", "::1".
bool is_loopback(std::string_view address);

// The device that a rank computes on: cuda:LOCAL_RANK or cpu:LOCAL_RANK, out of this process's
// num_devices logical devices (virtual ones count).
// Throws Error{Device} if the local rank is not below num_devices. It never wraps around: two ranks
// on one GPU by accident would be slow at best.
Device device_of_rank(const RankEnvironment& environment, DeviceType type, int num_devices);

}  // namespace lockstep::launch
