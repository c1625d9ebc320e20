#include "tests/tools/predicted_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using nlohmann::json;

const std::vector<std::string> kNets = {
    "--model mlp:784-256-256-256-10 --dataset synthetic:512x784x10 --batch 256",
    "--model lenet --dataset synthetic:256x28x28x1x10 --batch 64",
};

struct Mode {
  std::string name, flags;
};

const std::vector<Mode> kModes = {{"dp", "--parallel dp"},
                                  {"ddp", "--parallel ddp"},
                                  {"zero1", "--parallel ddp --shard optimizer"},
                                  {"zero2", "--parallel ddp --shard gradients"},
                                  {"zero3", "--parallel ddp --shard parameters"},
                                  {"pipeline", "--parallel pipeline"}};

// The bytes of a step's tensors; the library's context and fragments are no tensors.
double bytes_of_step(const json& row) {
  double bytes = 0;
  for (const auto& [part, value] : row.at("memory_bytes").items()) {
    if (part != "workspace") bytes += value.get<double>();
  }
  return bytes;
}

// While the messages of zero1 and zero2 are on the way, a step of a busy machine may hold all
// gradients once more than it has to, and a copy of what is being reduced.
double bytes_on_the_way(const json& row) {
  if (row["mode"] != "zero1" && row["mode"] != "zero2") return 0;
  return 2 * row["memory_bytes"]["parameters"].get<double>();
}

// predict() and train(): a row each. A thread that is late may hold more than usual, in either, so
// the best of five tries counts.
void expect_near(const std::function<json(int)>& predict, const std::function<json()>& train,
                 const std::string& what) {
  double bytes = 0, peak = 0, most = 0;
  for (int run = 0; run < 5; ++run) {
    const json predicted = predict(run);
    bytes = bytes_of_step(predicted);
    peak = std::ranges::max(train().at("peak_bytes").get<std::vector<double>>());
    most = 0.03 * peak + bytes_on_the_way(predicted);
    if (std::abs(bytes - peak) <= most) return;
  }
  EXPECT_NEAR(bytes, peak, most) << what;
}

}  // namespace

void expect_predicted_memory(const std::string& device, const std::string& topology) {
  const TempFolder folder;
  const auto run = [&](const std::string& text) {
    const Outcome outcome = run_lockstep(words(text), folder.path());
    EXPECT_EQ(outcome.exit_code, 0) << text << "\n" << outcome.err;
  };
  const auto train = [&](const std::string& flags, const std::string& file) {
    run("train --lr 0.01 --epochs 2 " + device + " " + flags + " --json " + file);
    return read_json(folder / file)["rows"][0];
  };
  for (const std::string& net : kNets) {
    const json alone = train(net, "alone.json");
    for (const std::string more : {"", " --accumulate 4"}) {
      for (const Mode& mode : kModes) {
        if (!more.empty() && mode.name != "ddp") continue;
        const auto predict = [&] {
          run("predict --workload alone.json --topology " + topology +
              " --devices 1,2,4 --pipeline-schedule 1f1b --json p.json --strategy " + mode.name +
              more);
          return read_json(folder / "p.json")["rows"];
        };
        json rows = predict();
        // Once for all rows, and again where that was not near.
        const auto predicted = [&](std::size_t row, int try_number) {
          if (try_number > 0) rows = predict();
          return rows[row];
        };
        if (more.empty() && mode.name == "dp") {
          expect_near([&](int number) { return predicted(0, number); }, [&] { return alone; },
                      net + " on one");
        }
        for (const std::size_t row : {1, 2}) {
          const std::string count = std::to_string(2 * row);
          const std::string devices =
              (mode.name == "pipeline" ? " --stages " : " --devices ") + count;
          expect_near(
              [&](int number) { return predicted(row, number); },
              [&] { return train(net + " " + mode.flags + devices + more, "several.json"); },
              net + more + " " + mode.name + " on " + count);
        }
      }
    }
  }
}

}  // namespace lockstep::testing
