#include "simulate/predict/topology.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/core/error.h"

namespace lockstep::predict {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string file(const std::string& nodes, const std::string& links) {
  return fmt::format(R"({{"schema": "lockstep.topology/1", "name": "mine", "source": "a test",
"device": {{"name": "GPU", "tflops": 10, "memory_gb_per_s": 500, "memory_gb": 12}},
"host": {{"gb_per_s": 50, "thread_gb_per_s": 9}},
"nodes": [{}],
"links": [{}]}})",
                     nodes, links);
}

const std::string kTwo =
    R"({"name": "a", "kind": "gpu"}, {"name": "b", "kind": "gpu"}, {"name": "c", "kind": "cpu"})";
const std::string kLink = R"({"from": "a", "to": "c", "kind": "pcie", "gb_per_s": 12})";

std::string message_of(const std::string& text) {
  try {
    parse_topology("mine.json", text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::Io);
    return error.what();
  }
  return "no error";
}

TEST(Topology, EveryPresetIsRightAndOfItsName) {
  EXPECT_THAT(preset_names(), Contains("titanx-maxwell-dual-root-8"));
  EXPECT_EQ(preset_names().size(), 12U);
  for (const std::string& name : preset_names()) {
    const Topology topology = find_topology(name);
    EXPECT_EQ(topology.name, name);
    EXPECT_EQ(topology.gpus.size(), name == "k80-p2-16x" ? 16U : 8U) << name;
    EXPECT_FALSE(topology.source.empty()) << name;
  }
}

TEST(Topology, AStarMakesACluster) {
  const Topology cluster = find_topology("dgx1-v100*4@100gbe");
  EXPECT_EQ(cluster.num_hosts, 4U);
  EXPECT_EQ(cluster.gpus.size(), 32U);
  EXPECT_EQ(cluster.nodes[cluster.gpus[31]].host, 3U);
  EXPECT_DOUBLE_EQ(cluster.network_bytes_per_second(), 12e9);
  for (const char* wrong : {"dgx1-v100*0@100gbe", "dgx1-v100*4", "dgx1-v100*4@0gbe",
                            "dgx1-v100*4@100", "dgx1-v100*4@nangbe", "nothing*4@100gbe"}) {
    EXPECT_THROW(find_topology(wrong), Error) << wrong;
  }
}

TEST(Topology, OnlyConsumerCardsWithoutNvlinkAreCalledSo) {
  std::vector<std::string> found;
  for (const std::string& name : preset_names()) {
    const Topology topology = find_topology(name);
    if (topology.has_consumer_cards_on_pcie()) found.push_back(name);
    EXPECT_EQ(make_cluster(topology, 2, 100, 1).has_consumer_cards_on_pcie(),
              topology.has_consumer_cards_on_pcie())
        << name;
  }
  EXPECT_THAT(found, ElementsAre("gtx1080ti-pcie3-8", "rtx4090-pcie4-8", "rtx5090-pcie5-8",
                                 "titanx-maxwell-dual-root-8", "titanx-pascal-dual-root-8"));
  Topology topology = find_topology("rtx4090-pcie4-8");
  for (const char* name : {"NVIDIA GeForce RTX 3070 Ti", "TITAN RTX", "rtx4060"}) {
    topology.device.name = name;
    EXPECT_TRUE(topology.has_consumer_cards_on_pcie()) << name;
  }
  for (const char* name : {"RTX A6000", "RTX 6000 Ada", "Quadro RTX 8000", "L40S", "T4"}) {
    topology.device.name = name;
    EXPECT_FALSE(topology.has_consumer_cards_on_pcie()) << name;
  }
  topology.device.name = "RTX 3090";
  topology.links[0].kind = LinkKind::nvlink;
  EXPECT_FALSE(topology.has_consumer_cards_on_pcie()) << "joined by NVLink";
  topology = find_topology("rtx4090-pcie4-8");
  topology.gpus.resize(1);
  EXPECT_FALSE(topology.has_consumer_cards_on_pcie()) << "one card";
}

TEST(Topology, ANameNearAPresetsIsSuggested) {
  for (const char* name : {"HGX-H100-8", "hgxh100", "hgx_h100_8", "hgx-h100"}) {
    try {
      find_topology(name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("did you mean 'hgx-h100-8'?")) << name;
    }
  }
}

TEST(Topology, MistakesAreNamedWithTheirField) {
  const std::string second = R"({"from": "b", "to": "c", "kind": "pcie", "gb_per_s": 12})";
  EXPECT_EQ(message_of(file(kTwo, kLink + ", " + second)), "no error");
  EXPECT_THAT(message_of(file(kTwo, kLink)), HasSubstr("nodes[1]: 'b' has no link"));
  EXPECT_THAT(
      message_of(file(
          kTwo, kLink + ",\n" + R"({"from": "gpu9", "to": "c", "kind": "pcie", "gb_per_s": 1})")),
      HasSubstr("links[1].from: no device or node is called 'gpu9'"));
  EXPECT_THAT(
      message_of(
          file(kTwo, kLink + ",\n" + R"({"from": "b", "to": "c", "kind": "pcie", "gb_per_s": 0})")),
      HasSubstr("expected links[1].gb_per_s to be a number above 0, to 1e30, found 0"));
  EXPECT_THAT(
      message_of(file(kTwo, kLink + ",\n" + R"({"from": "b", "to": "c", "kind": "pcie"})")),
      HasSubstr("expected links[1].gb_per_s to be a number above 0, to 1e30, found nothing"));
  const auto with = [&](const std::string& more) {
    return file(kTwo, kLink + ",\n" + R"({"from": "b", "to": "c", "kind": "pcie", )" + more + "}");
  };
  EXPECT_THAT(
      message_of(with(R"("gb_per_s": 1, "latencyus": 3)")),
      HasSubstr(
          "links[1].latencyus: no field here is called 'latencyus'; did you mean 'latency_us'?"));
  EXPECT_THAT(message_of(with(R"("gb_per_s": 1, "latency_us": 1e29)")),
              HasSubstr("at most a second"));
  EXPECT_THAT(message_of(with(R"("gb_per_s": 1e-29)")), HasSubstr("from 1e-6 to 1e9"));
  const std::string apart = kTwo + R"(, {"name": "d", "kind": "switch"})";
  const std::string island = R"({"from": "b", "to": "d", "kind": "pcie", "gb_per_s": 1})";
  EXPECT_THAT(message_of(file(apart, kLink + ", " + island)),
              HasSubstr("no links lead from 'c' to 'b'"));
  const std::string behind = R"({"from": "b", "to": "a", "kind": "nvlink", "gb_per_s": 1})";
  EXPECT_THAT(message_of(file(kTwo, kLink + ", " + behind)),
              HasSubstr("through other GPUs, which don't"));
  EXPECT_THAT(message_of(R"({"schema": "lockstep.run/1"})"), HasSubstr("lockstep.topology/1"));
}

}  // namespace
}  // namespace lockstep::predict
