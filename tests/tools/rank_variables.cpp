#include "tests/tools/rank_variables.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "engine/core/error.h"
#include "engine/launch/rendezvous.h"

namespace lockstep::testing {
namespace {

// Pairs of ports below those that the kernel gives out itself.
constexpr int kFirstPort = 25000;
constexpr int kNumPairs = 3500;

// Variables that all ranks share, and variables that hold a rank's number.
std::vector<Variables> ranks_with(int num_ranks, const Variables& shared,
                                  const std::vector<std::string>& numbers) {
  std::vector<Variables> ranks(static_cast<std::size_t>(num_ranks), shared);
  for (int rank = 0; rank < num_ranks; ++rank) {
    for (const std::string& name : numbers) {
      ranks[static_cast<std::size_t>(rank)][name] = std::to_string(rank);
    }
  }
  return ranks;
}

}  // namespace

std::string free_port() {
  using launch::PortReservation;
  static std::atomic<int> count{0};
  for (;;) {
    const int port = kFirstPort + 2 * ((::getpid() * 31 + ++count) % kNumPairs);
    try {
      const PortReservation here(port, PortReservation::Scope::loopback);
      const PortReservation next(port + 1, PortReservation::Scope::loopback);
      return std::to_string(port);
    } catch (const Error&) {
      continue;  // somebody listens there
    }
  }
}

std::vector<Variables> ranks_by_hand(int num_ranks) {
  return ranks_with(num_ranks,
                    {{"WORLD_SIZE", std::to_string(num_ranks)}, {"MASTER_PORT", free_port()}},
                    {"RANK", "LOCAL_RANK"});
}

std::vector<Variables> ranks_of_torchrun(int num_ranks) {
  const std::string count = std::to_string(num_ranks);
  return ranks_with(num_ranks,
                    {{"WORLD_SIZE", count},
                     {"LOCAL_WORLD_SIZE", count},
                     {"GROUP_RANK", "0"},
                     {"MASTER_ADDR", "localhost"},
                     {"MASTER_PORT", free_port()},
                     {"TORCHELASTIC_RUN_ID", "none"},
                     {"TORCHELASTIC_RESTART_COUNT", "0"},
                     {"TORCHELASTIC_USE_AGENT_STORE", "True"}},
                    {"RANK", "LOCAL_RANK"});
}

std::vector<Variables> ranks_of_slurm_step(int num_ranks) {
  return ranks_with(num_ranks,
                    {{"SLURM_JOB_ID", free_port()},
                     {"SLURM_STEP_ID", "0"},
                     {"SLURM_NTASKS", std::to_string(num_ranks)},
                     {"SLURM_NNODES", "1"}},
                    {"SLURM_PROCID", "SLURM_LOCALID"});
}

std::string mpirun(int num_ranks) {
  if (std::system("command -v mpirun > /dev/null") != 0) return {};
  return "mpirun --allow-run-as-root --oversubscribe -np " + std::to_string(num_ranks) + " ";
}

}  // namespace lockstep::testing
