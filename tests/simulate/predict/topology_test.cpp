#include "simulate/predict/topology.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/core/error.h"

namespace lockstep::predict {
namespace {

using ::testing::Contains;
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
  EXPECT_EQ(preset_names().size(), 17U);
  for (const std::string& name : preset_names()) {
    const Topology topology = find_topology(name);
    EXPECT_EQ(topology.name, name);
    EXPECT_EQ(topology.gpus.size(), name == "k80-p2-16x"   ? 16U
                                    : name == "t4-cloud-4" ? 4U
                                                           : 8U)
        << name;
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

TEST(Topology, PeerAccessIsByPair) {
  const Topology bridged = find_topology("rtx3090-nvlink-8*2@100gbe");
  const auto peers = [&](std::size_t a, std::size_t b) {
    return bridged.has_peer_access(bridged.gpus[a], bridged.gpus[b]);
  };
  EXPECT_TRUE(peers(0, 1)) << "a bridge";
  EXPECT_TRUE(peers(14, 15)) << "a bridge of the second host";
  EXPECT_FALSE(peers(1, 2));
  const Topology switched = find_topology("hgx-h100-8");
  Topology nvlink_alone = switched;
  nvlink_alone.peer_access = PeerAccess::listed;
  EXPECT_TRUE(nvlink_alone.has_peer_access(switched.gpus[0], switched.gpus[7])) << "an NVSwitch";
  EXPECT_TRUE(find_topology("a6000-pcie4-8").has_peer_access(0, 7));
  EXPECT_FALSE(find_topology("rtx4090-pcie4-8").has_peer_access(0, 1));
}

TEST(Topology, ContradictionsAboutPeerAccessAreOneLine) {
  const std::string links = kLink + R"(, {"from": "b", "to": "c", "kind": "KIND", "gb_per_s": 12})";
  const auto message = [&](const std::string& access, const std::string& kind = "pcie",
                           const std::string& staging = "") {
    std::string text = file(kTwo, links);
    text.replace(text.find("KIND"), 4, kind);
    if (!staging.empty()) text.replace(text.find("\"thread_gb"), 0, staging);
    return message_of(text.replace(text.rfind('}'), 1, ", \"peer_access\": " + access + "}"));
  };
  EXPECT_EQ(message("false"), "no error");
  EXPECT_EQ(message(R"([["a", "b"]])"), "no error");
  EXPECT_THAT(message(R"([["a", "b"]])", "memory"),
              HasSubstr("'a' and 'b' have peer access but no link"));
  EXPECT_THAT(message(R"([["a", "a"]])"), HasSubstr("have peer access but no link"));
  EXPECT_THAT(message(R"([["a", "c"]])"), HasSubstr("no GPU is called 'c'"));
  EXPECT_THAT(message("1"), HasSubstr("true, false, or pairs of GPUs"));
  EXPECT_THAT(message(R"([["a"]])"), HasSubstr("true, false, or pairs of GPUs"));
  const std::string staging = R"("staging": {"gb_per_s": 20}, )";
  EXPECT_EQ(message("false", "pcie", staging), "no error");
  EXPECT_THAT(message("true", "pcie", staging), HasSubstr("no message is staged in host memory"));
}

TEST(Topology, AServerIsNamedAfterItsBoardToo) {
  EXPECT_EQ(find_topology("dgx-h100").name, "hgx-h100-8");
  EXPECT_EQ(find_topology("dgx-h200*2@100gbe").gpus.size(), 16u);
}

TEST(Topology, AFileMayBeLikeAPresetButForItsOwnFields) {
  const auto like = [](const std::string& preset, const std::string& more) {
    return R"({"schema": "lockstep.topology/1", "name": "mine", "source": "a test", "like": ")" +
           preset + "\"" + more + "}";
  };
  const Topology preset = find_topology("rtx4090-pcie4-8");
  const Topology same = parse_topology("mine.json", like("rtx4090-pcie4-8", ""));
  EXPECT_EQ(same.name, "mine");
  EXPECT_EQ(same.device.name, preset.device.name);
  EXPECT_EQ(same.links.size(), preset.links.size());
  EXPECT_FALSE(same.has_peer_access(0, 1));
  const std::string device =
      R"(, "device": {"name": "GPU", "tflops": 10, "memory_gb_per_s": 500, "memory_gb": 12})";
  const Topology other = parse_topology("mine.json", like("a6000-pcie4-8", device));
  EXPECT_EQ(other.device.name, "GPU");
  EXPECT_TRUE(other.has_peer_access(0, 7));
  const std::string cut = like("a6000-pcie4-8", R"(, "peer_access": false)");
  EXPECT_FALSE(parse_topology("mine.json", cut).has_peer_access(0, 7));
  EXPECT_THAT(message_of(like("a6000-pcie4", "")), HasSubstr("'a6000-pcie4' is no preset"));
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
