// The environment that a rank gets: torchrun's variables, which we read ourselves.
#include <gtest/gtest.h>

#include "engine/launch/launcher.h"
#include "engine/launch/rank_environment.h"

namespace lockstep::launch {
namespace {

LaunchOptions second_node_of_two() {
  LaunchOptions options;
  options.environment = {{"HOME", "/root"}, {"RANK", "77"}};
  options.num_ranks = 4;
  options.num_nodes = 2;
  options.node_rank = 1;
  options.master_address = "10.0.0.1";
  options.master_port = 29500;
  options.token = "secret";
  options.run_id = "job";
  options.binding = Binding::none;
  options.max_restarts = 3;
  return options;
}

TEST(EnvironmentOfRank, HoldsTorchrunsVariables) {
  const Environment environment = environment_of_rank(second_node_of_two(), 2, 1);
  const Environment expected = {{"HOME", "/root"},
                                {"RANK", "6"},
                                {"WORLD_SIZE", "8"},
                                {"LOCAL_RANK", "2"},
                                {"LOCAL_WORLD_SIZE", "4"},
                                {"GROUP_RANK", "1"},
                                {"GROUP_WORLD_SIZE", "2"},
                                {"ROLE_NAME", "default"},
                                {"ROLE_RANK", "6"},
                                {"ROLE_WORLD_SIZE", "8"},
                                {"MASTER_ADDR", "10.0.0.1"},
                                {"MASTER_PORT", "29500"},
                                {"OMP_NUM_THREADS", "1"},
                                {"TORCHELASTIC_RUN_ID", "job"},
                                {"LOCKSTEP_TOKEN", "secret"},
                                {"TORCHELASTIC_RESTART_COUNT", "1"},
                                {"LOCKSTEP_LAUNCHER", "run"},
                                {"TORCHELASTIC_MAX_RESTARTS", "3"},
                                {"TORCHELASTIC_USE_AGENT_STORE", "False"}};
  EXPECT_EQ(environment, expected);
}

TEST(EnvironmentOfRank, ThreadsAreLimitedOnlyWhereSeveralRanksShareTheHost) {
  LaunchOptions options = second_node_of_two();
  options.environment["OMP_NUM_THREADS"] = "7";
  EXPECT_EQ(environment_of_rank(options, 0, 0)["OMP_NUM_THREADS"], "7");
  options.environment["OMP_NUM_THREADS"] = "";
  EXPECT_EQ(environment_of_rank(options, 0, 0)["OMP_NUM_THREADS"], "1");
  options.environment.erase("OMP_NUM_THREADS");
  options.num_ranks = 1;
  EXPECT_FALSE(environment_of_rank(options, 0, 0).contains("OMP_NUM_THREADS"));
}

}  // namespace
}  // namespace lockstep::launch
