#include "tests/tools/predicted_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using nlohmann::json;

const std::vector<std::string> kNets = {
    "--model mlp:64-128-128-128-10 --dataset digits --batch 64",
    "--model mlp:784-256-256-256-10 --dataset synthetic:512x784x10 --batch 256",
    "--model lenet --dataset digits --batch 64",
    "--model resnet18:8 --dataset synthetic:64x16x16x3x10 --batch 32",
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

// Which is not cut into a pipeline, and whose batches are not accumulated.
bool has_batch_norm(const std::string& net) {
  return net.find("resnet") != std::string::npos;
}

// What a step's tensors take; the library's context and fragments are no tensors.
double bytes_of_step(const json& row) {
  double bytes = 0;
  for (const auto& [part, value] : row.at("memory_bytes").items()) {
    if (part != "workspace") bytes += value.get<double>();
  }
  return bytes;
}

// A step may hold one shard more while the messages of zero1 and zero2 are on the way.
double bytes_on_the_way(const json& row) {
  if (row["mode"] != "zero1" && row["mode"] != "zero2") return 0;
  return row["memory_bytes"]["parameters"].get<double>() / row["devices"].get<double>();
}

void expect_near(const json& predicted, const json& trained, const std::string& what) {
  const double peak = std::ranges::max(trained.at("peak_bytes").get<std::vector<double>>());
  const double bytes = bytes_of_step(predicted);
  std::printf("%-64s %10.0f %10.0f %+6.1f %%\n", what.c_str(), bytes, peak,
              100 * (bytes / peak - 1));
  EXPECT_NEAR(bytes, peak, 0.03 * peak + bytes_on_the_way(predicted)) << what;
}

}  // namespace

void expect_predicted_memory(const std::string& device, const std::string& topology) {
  const TempFolder folder;
  const auto run = [&](const std::string& text) {
    const Outcome outcome = run_lockstep(words(text), folder.path());
    EXPECT_EQ(outcome.exit_code, 0) << text << "\n" << outcome.err;
  };
  const auto train = [&](const std::string& flags, const std::string& file) {
    run("train --lr 0.01 --epochs 3 " + device + " " + flags + " --json " + file);
    return read_json(folder / file)["rows"][0];
  };
  for (const std::string& net : kNets) {
    const json alone = train(net, "alone.json");
    for (const std::string more : {"", " --accumulate 4"}) {
      for (const Mode& mode : kModes) {
        const bool accumulates = mode.name == "ddp";
        const bool is_refused = more.empty() ? mode.name == "pipeline" && has_batch_norm(net)
                                             : !accumulates || has_batch_norm(net);
        if (is_refused) continue;
        run("predict --workload alone.json --topology " + topology +
            " --devices 1,2,4 --pipeline-schedule 1f1b --json p.json --strategy " + mode.name +
            more);
        const json rows = read_json(folder / "p.json")["rows"];
        if (more.empty() && mode.name == "dp") expect_near(rows[0], alone, net + " on one");
        for (const json& row : {rows[1], rows[2]}) {
          const std::string count = row["devices"].dump();
          const std::string devices =
              (mode.name == "pipeline" ? " --stages " : " --devices ") + count;
          expect_near(row, train(net + " " + mode.flags + devices + more, "several.json"),
                      net.substr(8, 36) + more + " " + mode.name + " on " + count);
        }
      }
    }
  }
}

}  // namespace lockstep::testing
