// lockstep calibrate: this machine as a topology.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json step_seconds(const json& rows) {
  return rows.back()["step_seconds"];
}

// If other programs took the cores meanwhile (was_disturbed), the times mean nothing.
void expect_measured(const json& topology) {
  EXPECT_EQ(topology["schema"], "lockstep.topology/1");
  const json& measured = topology["measured"];
  EXPECT_EQ(measured["threads_per_device"], 1);
  EXPECT_EQ(measured["layers_beside"].size(), 2U);
  ASSERT_EQ(measured["traffic"].size(), 2U);
  EXPECT_EQ(measured["traffic"][1]["devices"], 2);
  ASSERT_EQ(measured["all_reduces"].size(), 2U);
  EXPECT_EQ(measured["all_reduces"][0]["ranks"], "threads");
  EXPECT_EQ(measured["all_reduces"][1]["ranks"], "processes");
}

bool are_plausible(const json& measured) {
  for (const json& all_reduce : measured["all_reduces"]) {
    // A thousand times as many bytes take longer.
    if (all_reduce["us"].back() <= all_reduce["us"].front()) return false;
  }
  // The widest layer: of a thousand times as many rows at least a hundred times as long.
  const json& forward = measured["layers"]["forward_us"];
  return forward.back().get<double>() > 100 * forward[3].get<double>();
}

TEST(Calibrate, WritesATopologyThatPredictionsAndSlowMotionTake) {
  const TempFolder folder;
  const auto run = [&](const std::string& arguments) {
    const Outcome outcome = run_lockstep(words(arguments), folder.path());
    expect_success(outcome);
    return outcome.out;
  };
  // Another program can spoil a try, and is not always noticed.
  bool is_usable = false;
  for (int i = 0; i < 3 && !is_usable; ++i) {
    const std::string said =
        run("calibrate --fast -o here.json --devices 2 --threads-per-device 1");
    EXPECT_THAT(said, HasSubstr("wrote here.json"));
    const json topology = read_json(folder / "here.json");
    expect_measured(topology);
    is_usable =
        said.find("*: another program took") != said.npos || are_plausible(topology["measured"]);
  }
  EXPECT_TRUE(is_usable) << read_json(folder / "here.json");

  run("train --devices 1 --threads-per-device 1 --steps 40 --json run.json");
  const std::string predict =
      "predict --workload run.json --topology here.json --devices 2 --strategy ddp --json p.json";
  EXPECT_THAT(run(predict), HasSubstr("as measured on"));
  // One device of the topology is the one that ran.
  const json by_threads = read_json(folder / "p.json")["rows"];
  const json measured = read_json(folder / "run.json")["rows"][0];
  EXPECT_NEAR(by_threads[0]["step_seconds"].get<double>(), measured["step_seconds"].get<double>(),
              1e-9);
  const json& medians = measured["step_statistics"]["median_seconds"];
  const json& predicted = by_threads[0]["breakdown_seconds"];
  for (const char* part : {"forward", "optimizer"}) {
    const auto ratio = [&](const json& parts) {
      return parts[part].get<double>() / parts["backward"].get<double>();
    };
    EXPECT_NEAR(ratio(predicted), ratio(medians), 1e-6) << part;
  }
  run(predict + " --ranks processes");
  EXPECT_NE(step_seconds(by_threads), step_seconds(read_json(folder / "p.json")["rows"]));

  run("compare --act-as here.json --predict --modes ddp --devices 2 --steps 6 --json acted.json");
  const json rows = read_json(folder / "acted.json")["rows"];
  EXPECT_EQ(rows[0]["kind"], "acted");
  EXPECT_EQ(rows.back()["kind"], "predicted");
}

}  // namespace
}  // namespace lockstep::testing
