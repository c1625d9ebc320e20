// How GPUs reach each other: switches, direct NVLinks, PCIe, and what is not told.
#include "tools/nvml/nvml.h"

#include <gtest/gtest.h>

#include "tests/support/fake_nvml/fake_machine.h"

namespace lockstep::nvml {
namespace {

using lockstep::testing::FakeMachine;
using nlohmann::json;

std::vector<std::vector<GpuLink>> links_of_machine() {
  const Library library;
  return read_links(library, read_gpus(library));
}

TEST(ReadLinks, SwitchesJoinAllGpusWithTheSmallerNumberOfLinks) {
  FakeMachine machine(3);
  machine.gpu(2)["nvlinks"] = {"switch", "", "switch"};
  machine.publish();
  const auto links = links_of_machine();
  EXPECT_EQ(links[0][1].path(), "NV18");
  EXPECT_EQ(links[0][2].path(), "NV2") << "a link that is not active does not count";
  EXPECT_EQ(links[2][1].path(), "NV2");
}

TEST(ReadLinks, DirectNvLinksCountTowardsTheirNeighbourOnly) {
  FakeMachine machine(3);
  machine.gpu(0)["nvlinks"] = {"00000000:11:00.0", "00000000:11:00.0", "00000000:99:00.0"};
  machine.gpu(1)["nvlinks"] = {"00000000:10:00.0", "00000000:10:00.0"};
  machine.gpu(2)["nvlinks"] = json::array();
  machine.publish();
  const auto links = links_of_machine();
  EXPECT_EQ(links[0][1].path(), "NV2");
  EXPECT_EQ(links[1][0].path(), "NV2");
  EXPECT_EQ(links[0][2].path(), "NODE");
}

TEST(ReadLinks, WithoutNvLinksThePciePathIsNamed) {
  FakeMachine machine(5);
  for (std::size_t i = 0; i < 5; ++i) machine.gpu(i).erase("nvlinks");
  machine.description["topology"][2][3] = 20;
  machine.description["topology"][3][2] = 30;
  machine.publish();
  const auto links = links_of_machine();
  EXPECT_EQ(links[0][1].path(), "PIX");
  EXPECT_EQ(links[2][3].path(), "PXB");
  EXPECT_EQ(links[3][2].path(), "PHB");
  EXPECT_EQ(links[0][2].path(), "NODE");
  EXPECT_EQ(links[0][4].path(), "SYS");
}

TEST(ReadLinks, PeerAccessHasADirection) {
  FakeMachine machine(2);
  machine.description["p2p"][0][1] = 1;
  machine.publish();
  const auto links = links_of_machine();
  EXPECT_EQ(links[0][1].peer_access, false);
  EXPECT_EQ(links[1][0].peer_access, true);
}

}  // namespace
}  // namespace lockstep::nvml
