// One table: what a process finds out about itself, for every launcher; and what it refuses.
#include "engine/launch/rank_environment.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace lockstep::launch {
namespace {

struct Found {
  Launcher launcher;
  int rank, world_size, local_rank, local_world_size;
  Hosts hosts;
  std::string address;
  int port;  // 0: made of a job's id
};

struct Case {
  std::string name;
  Environment environment;
  Found expected;
};

void PrintTo(const Case& test_case, std::ostream* stream) {
  *stream << test_case.name;
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

const Found kAlone = {Launcher::alone, 0, 1, 0, 1, Hosts::one, "127.0.0.1", 29500};

const Case kCases[] = {
    {"NothingIsAlone", {}, kAlone},
    {"EmptyCountsAsUnset", {{"RANK", ""}, {"WORLD_SIZE", ""}, {"MASTER_ADDR", ""}}, kAlone},
    {"ByHandOnOneHost",
     {{"RANK", "2"}, {"WORLD_SIZE", "4"}},
     {Launcher::by_hand, 2, 4, 2, 4, Hosts::one, "127.0.0.1", 29500}},
    {"ByHandAsTheTextsDo",
     {{"RANK", "0"},
      {"WORLD_SIZE", "4"},
      {"LOCAL_RANK", "0"},
      {"MASTER_ADDR", "localhost"},
      {"MASTER_PORT", "29501"}},
     {Launcher::by_hand, 0, 4, 0, 4, Hosts::one, "localhost", 29501}},
    {"ByHandOnSeveralHosts",
     {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "192.168.1.1"}},
     {Launcher::by_hand, 3, 4, 1, 0, Hosts::several, "192.168.1.1", 29500}},
    {"MasterAddressInBracketsWithACarriageReturn",
     {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "[::1]\r"}},
     {Launcher::by_hand, 0, 2, 0, 2, Hosts::one, "::1", 29500}},
    {"Torchrun", kTorchrun, {Launcher::torchrun, 5, 8, 1, 4, Hosts::several, "node0", 400}},
    {"TorchrunOnOneHost",
     with(kTorchrun, {{"LOCAL_WORLD_SIZE", "8"}, {"LOCAL_RANK", "5"}}),
     {Launcher::torchrun, 5, 8, 5, 8, Hosts::one, "node0", 400}},
    {"TorchrunsAgentHasThePortItself",
     with(kTorchrun,
          {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RESTART_COUNT", "2"}}),
     {Launcher::torchrun, 5, 8, 1, 4, Hosts::several, "node0", 403}},
    {"LockstepRun",
     with(kTorchrun, {{"LOCKSTEP_LAUNCHER", "run"}}),
     {Launcher::lockstep, 5, 8, 1, 4, Hosts::several, "node0", 400}},
    {"OpenMpi", kOpenMpi, {Launcher::open_mpi, 1, 4, 1, 4, Hosts::one, "127.0.0.1", 0}},
    {"OpenMpiOnSeveralHosts",
     with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"MASTER_ADDR", "a"}}),
     {Launcher::open_mpi, 1, 4, 1, 2, Hosts::several, "a", 0}},
    {"RankAndWorldSizeWin",
     with(kOpenMpi, {{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
     {Launcher::by_hand, 0, 2, 0, 2, Hosts::one, "127.0.0.1", 29500}},
    {"RankAndSizeComeFromOneFamily",
     with(kOpenMpi, {{"WORLD_SIZE", "2"}}),
     {Launcher::open_mpi, 1, 4, 1, 4, Hosts::one, "127.0.0.1", 0}},
    {"Pmi",
     {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}},
     {Launcher::pmi, 1, 2, 1, 2, Hosts::one, "127.0.0.1", 29500}},
    {"Mvapich",
     {{"MV2_COMM_WORLD_RANK", "1"},
      {"MV2_COMM_WORLD_SIZE", "2"},
      {"MV2_COMM_WORLD_LOCAL_RANK", "1"},
      {"MV2_COMM_WORLD_LOCAL_SIZE", "2"}},
     {Launcher::mvapich, 1, 2, 1, 2, Hosts::one, "127.0.0.1", 29500}},
    {"SlurmStep", kSlurm, {Launcher::slurm, 2, 3, 0, 0, Hosts::several, "gpu07", 0}},
    {"SlurmStepSmallerThanItsAllocation",
     with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "3"},
                   {"SLURM_NTASKS", "8"},
                   {"SLURM_STEP_NUM_NODES", "1"},
                   {"MASTER_ADDR", ""},
                   {"SLURM_LOCALID", "2"}}),
     {Launcher::slurm, 2, 3, 2, 3, Hosts::one, "127.0.0.1", 0}},
    {"SlurmAllocationWithoutStepIsAlone", with(kSlurm, {{"SLURM_STEP_ID", ""}}), kAlone},
    {"SlurmBatchScriptIsAlone", with(kSlurm, {{"SLURM_STEP_ID", "4294967291"}}), kAlone},
    {"SlurmStepThatSpeaksPmi",
     with(kSlurm, {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}}),
     {Launcher::slurm, 2, 3, 0, 0, Hosts::several, "gpu07", 0}},
    {"MpirunInsideASlurmStep",
     with(kSlurm, kOpenMpi),
     {Launcher::open_mpi, 1, 4, 1, 4, Hosts::one, "gpu07", 0}},
};

class RankEnvironmentTable : public ::testing::TestWithParam<Case> {};

TEST_P(RankEnvironmentTable, IsFound) {
  const Found& expected = GetParam().expected;
  const RankEnvironment found = rank_environment(GetParam().environment);
  EXPECT_EQ(to_string(found.launcher), to_string(expected.launcher));
  EXPECT_EQ(found.rank, expected.rank);
  EXPECT_EQ(found.world_size, expected.world_size);
  EXPECT_EQ(found.local_rank, expected.local_rank);
  EXPECT_EQ(found.local_world_size, expected.local_world_size);
  EXPECT_EQ(found.hosts, expected.hosts);
  EXPECT_EQ(found.master_address, expected.address);
  if (expected.port != 0) {
    EXPECT_EQ(found.master_port, expected.port);
  } else {
    EXPECT_GE(found.master_port, 15000);
    EXPECT_LT(found.master_port, 25000);
  }
}

INSTANTIATE_TEST_SUITE_P(Launchers, RankEnvironmentTable, ::testing::ValuesIn(kCases),
                         [](const auto& test) { return test.param.name; });

struct Mistake {
  std::string name;
  Environment environment;
  std::string variable;  // that the error names
};

void PrintTo(const Mistake& mistake, std::ostream* stream) {
  *stream << mistake.name;
}

const Mistake kMistakes[] = {
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

class RankEnvironmentMistake : public ::testing::TestWithParam<Mistake> {};

TEST_P(RankEnvironmentMistake, NamesTheVariable) {
  testing::expect_error(ErrorCode::Usage, GetParam().variable,
                        [] { rank_environment(GetParam().environment); });
}

INSTANTIATE_TEST_SUITE_P(Mistakes, RankEnvironmentMistake, ::testing::ValuesIn(kMistakes),
                         [](const auto& test) { return test.param.name; });

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
  testing::expect_error(ErrorCode::Device, "--virtual-devices",
                        [] { device_of_rank(rank_with_local_rank(1), DeviceType::cuda, 1); });
  testing::expect_error(ErrorCode::Device, "sees no cuda device",
                        [] { device_of_rank(rank_with_local_rank(0), DeviceType::cuda, 0); });
}

}  // namespace
}  // namespace lockstep::launch
