// One table: what a process finds out about itself, for every launcher; and what it refuses.
#include "engine/launch/rank_environment.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/expect_error.h"

namespace lockstep::launch {
namespace {

// "srun: rank 2 of 3, local 0 of 0, several hosts, gpu07 port of the job"; local size 0: unknown.
std::string found_in(const Environment& environment) {
  const RankEnvironment found = rank_environment(environment);
  const bool is_of_job = found.master_port >= 15000 && found.master_port < 25000;
  return fmt::format("{}: rank {} of {}, local {} of {}, {}, {} port {}", to_string(found.launcher),
                     found.rank, found.world_size, found.local_rank, found.local_world_size,
                     found.hosts == Hosts::one ? "one host" : "several hosts", found.master_address,
                     is_of_job ? "of the job" : std::to_string(found.master_port));
}

const Environment kTorchrun = {{"RANK", "5"},
                               {"WORLD_SIZE", "8"},
                               {"LOCAL_RANK", "1"},
                               {"LOCAL_WORLD_SIZE", "4"},
                               {"MASTER_ADDR", "node0"},
                               {"MASTER_PORT", "400"},
                               {"TORCHELASTIC_RUN_ID", "x"}};
const Environment kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                              {"OMPI_COMM_WORLD_SIZE", "4"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                              {"PMIX_NAMESPACE", "prterun-1"}};
const Environment kSlurm = {{"SLURM_JOB_ID", "4242"}, {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "2"},
                            {"SLURM_NTASKS", "3"},    {"SLURM_LOCALID", "0"}, {"SLURM_NNODES", "2"},
                            {"MASTER_ADDR", "gpu07"}};

// The variables of a and then those of b; "" in b makes a variable empty, so unset.
Environment with(Environment a, const Environment& b) {
  for (const auto& [name, value] : b) a[name] = value;
  return a;
}

constexpr const char* kAlone = "alone: rank 0 of 1, local 0 of 1, one host, 127.0.0.1 port 29500";

struct Case {
  std::string name;
  Environment environment;
  std::string expected;  // or the words of the error
};

const Case kCases[] = {
    {"NothingIsAlone", {}, kAlone},
    {"EmptyCountsAsUnset", {{"RANK", ""}, {"WORLD_SIZE", ""}, {"MASTER_ADDR", ""}}, kAlone},
    {"ByHandOnOneHost",
     {{"RANK", "2"}, {"WORLD_SIZE", "4"}},
     "by hand: rank 2 of 4, local 2 of 4, one host, 127.0.0.1 port 29500"},
    {"ByHandAsTheTextsDo",
     {{"RANK", "0"},
      {"WORLD_SIZE", "4"},
      {"LOCAL_RANK", "0"},
      {"MASTER_ADDR", "localhost"},
      {"MASTER_PORT", "29501"}},
     "by hand: rank 0 of 4, local 0 of 4, one host, localhost port 29501"},
    {"ByHandOnSeveralHosts",
     {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "192.168.1.1"}},
     "by hand: rank 3 of 4, local 1 of 0, several hosts, 192.168.1.1 port 29500"},
    {"MasterAddressInBracketsWithACarriageReturn",
     {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "[::1]\r"}},
     "by hand: rank 0 of 2, local 0 of 2, one host, ::1 port 29500"},
    {"Torchrun", kTorchrun, "torchrun: rank 5 of 8, local 1 of 4, several hosts, node0 port 400"},
    {"TorchrunOnOneHost", with(kTorchrun, {{"LOCAL_WORLD_SIZE", "8"}, {"LOCAL_RANK", "5"}}),
     "torchrun: rank 5 of 8, local 5 of 8, one host, node0 port 400"},
    {"TorchrunsAgentHasThePortItself",
     with(kTorchrun,
          {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RESTART_COUNT", "2"}}),
     "torchrun: rank 5 of 8, local 1 of 4, several hosts, node0 port 403"},
    {"LockstepRun", with(kTorchrun, {{"LOCKSTEP_LAUNCHER", "run"}}),
     "lockstep run: rank 5 of 8, local 1 of 4, several hosts, node0 port 400"},
    {"OpenMpi", kOpenMpi,
     "mpirun (Open MPI): rank 1 of 4, local 1 of 4, one host, 127.0.0.1 port of the job"},
    {"OpenMpiOnSeveralHosts",
     with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"MASTER_ADDR", "a"}}),
     "mpirun (Open MPI): rank 1 of 4, local 1 of 2, several hosts, a port of the job"},
    {"RankAndWorldSizeWin", with(kOpenMpi, {{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
     "by hand: rank 0 of 2, local 0 of 2, one host, 127.0.0.1 port 29500"},
    {"RankAndSizeComeFromOneFamily", with(kOpenMpi, {{"WORLD_SIZE", "2"}}),
     "mpirun (Open MPI): rank 1 of 4, local 1 of 4, one host, 127.0.0.1 port of the job"},
    {"Pmi",
     {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}},
     "mpirun (MPICH, Intel MPI): rank 1 of 2, local 1 of 2, one host, 127.0.0.1 port 29500"},
    {"Mvapich",
     {{"MV2_COMM_WORLD_RANK", "1"},
      {"MV2_COMM_WORLD_SIZE", "2"},
      {"MV2_COMM_WORLD_LOCAL_RANK", "1"},
      {"MV2_COMM_WORLD_LOCAL_SIZE", "2"}},
     "mpirun (MVAPICH2): rank 1 of 2, local 1 of 2, one host, 127.0.0.1 port 29500"},
    {"SlurmStep", kSlurm, "srun: rank 2 of 3, local 0 of 0, several hosts, gpu07 port of the job"},
    {"SlurmStepSmallerThanItsAllocation",
     with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "3"},
                   {"SLURM_NTASKS", "8"},
                   {"SLURM_STEP_NUM_NODES", "1"},
                   {"MASTER_ADDR", ""},
                   {"SLURM_LOCALID", "2"}}),
     "srun: rank 2 of 3, local 2 of 3, one host, 127.0.0.1 port of the job"},
    {"SlurmAllocationWithoutStepIsAlone", with(kSlurm, {{"SLURM_STEP_ID", ""}}), kAlone},
    {"SlurmBatchScriptIsAlone", with(kSlurm, {{"SLURM_STEP_ID", "4294967291"}}), kAlone},
    {"SlurmStepThatSpeaksPmi", with(kSlurm, {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}}),
     "srun: rank 2 of 3, local 0 of 0, several hosts, gpu07 port of the job"},
    {"MpirunInsideASlurmStep", with(kSlurm, kOpenMpi),
     "mpirun (Open MPI): rank 1 of 4, local 1 of 4, one host, gpu07 port of the job"},
};

TEST(RankEnvironment, IsFoundForEveryLauncher) {
  for (const Case& c : kCases) EXPECT_EQ(found_in(c.environment), c.expected) << c.name;
}

const Case kMistakes[] = {
    {"NoWorldSize", {{"RANK", "0"}}, "[WORLD_SIZE] this environment variable is missing"},
    {"NoRank", {{"WORLD_SIZE", "2"}}, "[RANK] this environment variable is missing"},
    {"RankTooLarge", {{"RANK", "2"}, {"WORLD_SIZE", "2"}}, "[RANK] expected a rank below"},
    {"RankNoNumber", {{"RANK", "one"}, {"WORLD_SIZE", "2"}}, "[RANK]"},
    {"WorldSizeZero", {{"RANK", "0"}, {"WORLD_SIZE", "0"}}, "[WORLD_SIZE]"},
    {"WorldSizeHuge", {{"RANK", "0"}, {"WORLD_SIZE", "2000000000"}}, "[WORLD_SIZE]"},
    {"LocalRankTooLarge",
     {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}},
     "[LOCAL_RANK]"},
    {"LocalRankAboveLocalSize", with(kTorchrun, {{"LOCAL_RANK", "4"}}), "[LOCAL_RANK]"},
    {"LocalWorldSizeTooLarge", with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}}), "[LOCAL_WORLD_SIZE]"},
    {"LocalRankMissingWithThisHostsName",
     {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node1"}},
     "if all ranks are on this host, set MASTER_ADDR to 127.0.0.1"},
    {"MasterAddressWithPort", with(kTorchrun, {{"MASTER_ADDR", "127.0.0.1:29500"}}),
     "[MASTER_ADDR] expected the name or the address of a host alone"},
    {"MasterAddressMissingOnSeveralHosts", with(kTorchrun, {{"MASTER_ADDR", ""}}), "[MASTER_ADDR]"},
    {"PortZero", with(kTorchrun, {{"MASTER_PORT", "0"}}), "[MASTER_PORT]"},
    {"PortTooLarge", with(kTorchrun, {{"MASTER_PORT", "65536"}}), "[MASTER_PORT]"},
    {"OpenMpiHalf", {{"OMPI_COMM_WORLD_RANK", "0"}}, "[OMPI_COMM_WORLD_SIZE]"},
    {"OpenMpiWhereRankZeroRuns", with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
     "[MASTER_ADDR]"},
    {"SlurmWithoutRank", with(kSlurm, {{"SLURM_PROCID", ""}}), "[SLURM_PROCID]"},
    {"SlurmWithoutSize", with(kSlurm, {{"SLURM_NTASKS", ""}}), "[SLURM_STEP_NUM_TASKS]"},
    {"SlurmOnSeveralHostsWithoutAddress", with(kSlurm, {{"MASTER_ADDR", ""}}),
     "[MASTER_ADDR] this environment variable is missing; with ranks on several hosts it says on "
     "which host rank 0 runs: export MASTER_ADDR=$(scontrol show hostnames "},
    {"SlurmStepNoNumber", with(kSlurm, {{"SLURM_STEP_ID", "x"}}), "[SLURM_STEP_ID]"},
};

TEST(RankEnvironment, MistakesNameTheVariable) {
  for (const Case& c : kMistakes) {
    SCOPED_TRACE(c.name);
    testing::expect_error(ErrorCode::Usage, c.expected, [&] { rank_environment(c.environment); });
  }
}

TEST(RankEnvironment, TwoJobsOfOneHostMeetAtPortsOfTheirOwn) {
  const int port = rank_environment(kSlurm).master_port;
  EXPECT_EQ(rank_environment(with(kSlurm, {{"SLURM_PROCID", "0"}})).master_port, port);
  EXPECT_NE(rank_environment(with(kSlurm, {{"SLURM_JOB_ID", "4243"}})).master_port, port);
  EXPECT_NE(rank_environment(with(kSlurm, {{"SLURM_STEP_ID", "1"}})).master_port, port);
  EXPECT_NE(rank_environment(with(kOpenMpi, {{"PMIX_NAMESPACE", "prterun-2"}})).master_port,
            rank_environment(kOpenMpi).master_port);
}

RankEnvironment rank_with_local_rank(int local_rank) {
  RankEnvironment environment;
  environment.rank = 10 + local_rank;
  environment.local_rank = local_rank;
  return environment;
}

TEST(RankDevice, IsTheOneOfTheLocalRank) {
  EXPECT_EQ(to_string(device_of_rank(rank_with_local_rank(3), DeviceType::cuda, 4)), "cuda:3");
  EXPECT_EQ(to_string(device_of_rank(rank_with_local_rank(0), DeviceType::cpu, 64)), "cpu:0");
}

TEST(RankDevice, NeverWrapsAround) {
  testing::expect_error(ErrorCode::Device, "rank 14 has local rank 4",
                        [] { device_of_rank(rank_with_local_rank(4), DeviceType::cuda, 4); });
  testing::expect_error(ErrorCode::Device, "LOCKSTEP_VIRTUAL_DEVICES",
                        [] { device_of_rank(rank_with_local_rank(1), DeviceType::cuda, 1); });
  testing::expect_error(ErrorCode::Device, "sees no cuda device",
                        [] { device_of_rank(rank_with_local_rank(0), DeviceType::cuda, 0); });
}

}  // namespace
}  // namespace lockstep::launch
