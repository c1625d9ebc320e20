// lockstep predict: on a run's workload, on nets known by their size, and on files that are wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/tools/formats_doc.h"
#include "tests/tools/predicted_memory.h"
#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class Predict : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) { write_text(folder_ / name, text); }
  Outcome run(const std::string& arguments) {
    return run_lockstep(words("predict " + arguments), folder_.path());
  }

  TempFolder folder_;
};

std::string run_file(const std::string& layers) {
  return R"({"schema": "lockstep.run/1", "config": {"device": "cpu", "model": "mlp:784-4096-10"},
"rows": [{"mode": "single", "devices": 1, "batch": 1024, "step_seconds": 0.07, "iterations": 30, "epoch_seconds": [1, 1]}],
"workload": {"batch": 1024, "input_bytes_per_row": 3136, "host_seconds_per_op": 1e-6,
"optimizer_seconds": 1e-3, "ready_order": ["0.weight"], "rows_per_epoch": 60000,
"layers": [)" +
         layers + "]}}";
}

// A Linear.
std::string layer(const std::string& name, std::size_t inputs, std::size_t outputs) {
  return json{
      {"name", name},
      {"forward_seconds", 1e-3},
      {"backward_seconds", 2e-3},
      {"parameter_bytes", (inputs + 1) * outputs * 4},
      {"product", {{"rows", 1}, {"inputs", inputs}, {"outputs", outputs}, {"image_bytes", 0}}},
      {"output_bytes", outputs * 4}}
      .dump();
}

// mlp:784-4096-10
std::string two_layers() {
  return layer("0", 784, 4096) + "," + layer("2", 4096, 10);
}

TEST_F(Predict, ARunsWorkloadHasRowsOfKindPredicted) {
  write("run.json", run_file(two_layers()));
  const Outcome outcome =
      run("--workload run.json --topology titanx-pascal-dual-root-8 --devices 1,2,8 "
          "--strategy ddp --what-if bandwidth=2x --json p.json --trace t.json");
  expect_success(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("predicted, not measured"));
  const json file = read_json(folder_ / "p.json");
  EXPECT_EQ(file["schema"], "lockstep.run/1");
  ASSERT_EQ(file["rows"].size(), 6U);
  for (const json& row : file["rows"]) {
    EXPECT_EQ(row["kind"], "predicted");
    EXPECT_LE(row["step_seconds_band"][0], row["step_seconds"]);
    EXPECT_GE(row["step_seconds_band"][1], row["step_seconds"]);
  }
  EXPECT_LT(file["rows"][5]["step_seconds"], file["rows"][2]["step_seconds"]);  // faster links
  EXPECT_FALSE(read_json(folder_ / "t.json")["traceEvents"].empty());
  for (std::size_t begin = 0; begin < outcome.out.size();) {
    const std::size_t end = outcome.out.find('\n', begin);
    EXPECT_LE(end - begin, 80U) << outcome.out.substr(begin, end - begin);
    begin = end + 1;
  }
}

TEST_F(Predict, AWorkloadsProductsHaveAPrecision) {
  write("run.json", run_file(two_layers()));
  const std::string flags = "--workload run.json --devices 1 --what-if batch=65536 --json p.json ";
  std::vector<double> steps;
  for (const char* precision : {"fp32", "bf16"}) {
    expect_success(run(flags + "--topology dgx-a100 --precision " + precision));
    const json file = read_json(folder_ / "p.json");
    EXPECT_EQ(file["config"]["precision"], precision);
    steps.push_back(file["rows"][1]["step_seconds"]);
  }
  expect_success(run(flags + "--topology dgx-a100"));
  EXPECT_EQ(read_json(folder_ / "p.json")["rows"][1]["step_seconds"], steps[0]);
  EXPECT_GT(steps[0], 5 * steps[1]);
  expect_rejected(run(flags + "--topology dgx1-v100 --precision bf16"), 2, {"bf16", "Tesla V100"});
  expect_rejected(run("--all-reduce 1M --topology dgx-a100 --precision bf16"), 2, {"--precision"});
}

TEST_F(Predict, DpTakesTheTimeOfItsInterpreter) {
  const auto steps = [&](const std::string& flags) {
    expect_success(
        run("--step 0.05 --batch-per-gpu 12 --topology dgx-a100 --devices 4 --modes "
            "ddp,dp --json p.json " +
            flags));
    const json rows = read_json(folder_ / "p.json")["rows"];
    return std::pair<double, double>(rows[1]["step_seconds"], rows[2]["step_seconds"]);
  };
  const auto [ddp, dp] = steps("--params 25.6M");
  EXPECT_GT(dp, ddp);
  const auto [other_ddp, slow] = steps("--params 25.6M --host-ms 40");
  EXPECT_THAT(
      run("--params 25.6M --step 0.05 --batch-per-gpu 12 --topology dgx-a100 --modes dp").out,
      HasSubstr("guessed to take 13.4 ms to launch"));
  EXPECT_EQ(other_ddp, ddp);
  EXPECT_GT(slow, dp + 4 * 20e-3);
  EXPECT_EQ(read_json(folder_ / "p.json")["config"]["host_ms"], 40);
  // A deeper net of as many parameters has more tensors to copy and to launch.
  EXPECT_GT(steps("--model resnet152 --params 25.6M").second, 1.2 * dp);
  EXPECT_NEAR(steps("--model resnet50 --params 25.6M").second, dp, 0.01 * dp);
}

TEST_F(Predict, MicroBatchesHideLessOfTheGradientsWay) {
  write("run.json", run_file(two_layers()));
  const std::string flags = "--workload run.json --topology dgx1-v100 --devices 8 --json p.json ";
  std::vector<double> steps;
  for (const char* number : {"1", "16"}) {
    expect_success(run(flags + "--strategy ddp --accumulate " + number));
    steps.push_back(read_json(folder_ / "p.json")["rows"][1]["step_seconds"]);
  }
  EXPECT_GT(steps[1], steps[0]);
  expect_success(run(flags + "--accumulate 2"));
  const json file = read_json(folder_ / "p.json");
  EXPECT_EQ(file["config"]["accumulate"], 2);
  EXPECT_EQ(file["config"]["strategies"], json({"ddp"}));
  const Outcome few = run(flags + "--accumulate 256 --what-if batch=2048");
  expect_success(few);
  EXPECT_THAT(few.out, HasSubstr("without 8 devices: a step has 1024 rows"));
  expect_rejected(run(flags + "--accumulate 0"), 2, {"--accumulate", "at least 1"});
  expect_rejected(run(flags + "--accumulate 256"), 2, {"1024 rows", "256 micro-batches"});
  expect_rejected(run(flags + "--accumulate 2 --strategy dp"), 2, {"--accumulate", "dp"});
  expect_rejected(run("--all-reduce 1M --topology dgx-a100 --accumulate 2"), 2, {"--accumulate"});
}

TEST_F(Predict, TooFewRowsForTheDevicesIsAnErrorThatItsOwnAdviceMends) {
  write("run.json", run_file(layer("0", 784, 4096)));  // 1024 rows a step
  const std::string flags =
      "--workload run.json --topology hgx-h100-8*512@8x400gbe --devices 8,2048 --strategy ddp";
  const Outcome refused = run(flags);
  expect_rejected(refused, 2, {"1024 rows", "2048 devices", "--what-if batch=2048"});
  EXPECT_EQ(refused.out, "");
  const Outcome outcome = run(flags + " --what-if batch=2048 --what-if bandwidth=2x --json p.json");
  expect_success(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("without 2048 devices: a step has 1024 rows"));
  std::vector<std::string> rows;
  const json file = read_json(folder_ / "p.json");
  for (const json& row : file["rows"]) {
    rows.push_back(row.value("what_if", "") + " " + row["devices"].dump());
  }
  EXPECT_THAT(rows, ::testing::ElementsAre(" 1", " 8", "batch=2048 1", "batch=2048 8",
                                           "batch=2048 2048", "bandwidth=2x 1", "bandwidth=2x 8"));
  expect_rejected(run(flags + " --what-if batch=512"), 2, {"512 rows", "2048 devices"});
}

TEST_F(Predict, OneProcessOverSeveralHostsIsRefusedAndNotADefault) {
  write("run.json", run_file(layer("0", 784, 4096)));
  const std::string flags = "--workload run.json --topology dgx1-v100*2@100gbe --devices 8,16";
  expect_rejected(run(flags + " --strategy dp"), 2, {"dp is one process", "8 a host"});
  const Outcome outcome = run(flags + " --json p.json");
  expect_success(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("without dp: it is one process"));
  EXPECT_EQ(read_json(folder_ / "p.json")["config"]["strategies"], json({"ddp"}));
}

// Without a published row there is no band, and the answer says so.
TEST_F(Predict, ABandIsTheClasssRecord) {
  write("run.json", run_file(layer("0", 999, 1000)));
  const Outcome outcome =
      run("--workload run.json --topology dgx1-v100 --devices 8 --strategy "
          "ddp,dp,zero1,zero3 --json p.json");
  expect_success(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("NVLink: 68 rows like this one: mean "));
  EXPECT_THAT(outcome.out, HasSubstr("not verified: no published row is like dp here"));
  EXPECT_THAT(outcome.out, HasSubstr("not verified: no published row is like zero1 here"));
  EXPECT_THAT(outcome.out, HasSubstr("zero3 over NVLink: 2 rows like this one: mean "));
  EXPECT_THAT(outcome.out, HasSubstr("kernels priced by a data sheet: 2 rows"));
  const json rows = read_json(folder_ / "p.json")["rows"];
  for (const json& row : rows) {
    const bool is_verified = row["mode"] == "ddp" || row["mode"] == "zero3";
    EXPECT_EQ(row.value("band_verified", false), is_verified) << row;
    EXPECT_EQ(row.contains("step_seconds_band"), is_verified || row["devices"] == 1) << row;
  }
  EXPECT_EQ(rows[1]["class"], "NVLink");

  const std::string two_hosts =
      "--workload run.json --devices 16 --strategy zero1,zero2,zero3 --topology dgx-a100*2@";
  const Outcome fast = run(two_hosts + "8x200gbe");
  EXPECT_THAT(fast.out, HasSubstr("zero1 between hosts: 2 rows"));
  EXPECT_THAT(fast.out, HasSubstr("zero2 between hosts of 1.6 Tb/s: 4 rows"));
  EXPECT_THAT(fast.out, HasSubstr("zero3 between hosts of 1.6 Tb/s: 36 rows"));
  const Outcome slow = run(two_hosts + "100gbe");
  EXPECT_THAT(slow.out, HasSubstr("zero1 between hosts: 2 rows"));
  EXPECT_THAT(slow.out, HasSubstr("not verified: no published row is like zero3 here"));
}

TEST_F(Predict, AnEpochIsTheDataSetAndAPredictionIsAWorkloadToo) {
  write("run.json", run_file(layer("0", 784, 4096)));
  const std::string flags = " --topology dgx1-v100 --devices 2 --strategy ddp --json p.json";
  const Outcome outcome = run("--workload run.json" + flags);
  expect_success(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("60000 rows, the data set's"));
  const json predicted = read_json(folder_ / "p.json");
  EXPECT_EQ(predicted["workload"]["ready_order"], json({"0.weight"}));
  const json& row = predicted["rows"][1];
  EXPECT_NEAR(row["median_epoch_seconds"], 59 * row["step_seconds"].get<double>(), 1e-9);
  std::filesystem::rename(folder_ / "p.json", folder_ / "again.json");
  expect_success(run("--workload again.json" + flags));
  EXPECT_EQ(read_json(folder_ / "p.json")["rows"], predicted["rows"]);
}

TEST_F(Predict, AModelThatNoDeviceHoldsIsRefused) {
  write("run.json", run_file(layer("0", 46999, 47872)));
  expect_rejected(run("--workload run.json --topology dgx1-p100"), 2, {"18 GB", "16 GB of memory"});
}

TEST_F(Predict, ItsOwnTraceIsDrawnByTheReport) {
  write("run.json", run_file(layer("0", 784, 4096)));
  expect_success(
      run("--workload run.json --topology dgx1-v100 --devices 4 --json p.json --trace t.json"));
  const json config = read_json(folder_ / "p.json")["config"];
  EXPECT_EQ(config["trace"], "t.json");
  EXPECT_EQ(config["topology"], "dgx1-v100");
  EXPECT_EQ(config["strategies"], json({"dp", "ddp"}));
  const Outcome report = run_lockstep({"report", "p.json", "-o", "r.html"}, folder_.path());
  expect_success(report);
  EXPECT_THAT(report.out + report.err, Not(HasSubstr("without training steps")));
  EXPECT_THAT(report.out + report.err, Not(HasSubstr("without --trace")));
}

TEST_F(Predict, ShardsAndPipelinesAreRowsLikeOthers) {
  write("run.json", run_file(layer("0", 999, 1000) + "," + layer("2", 999, 1000)));
  const std::string flags = "--workload run.json --topology dgx1-v100 --devices 2 --json p.json";
  expect_success(run(flags + " --strategy zero1,zero2,zero3,pipeline"));
  const json rows = read_json(folder_ / "p.json")["rows"];
  ASSERT_EQ(rows.size(), 5U);
  EXPECT_EQ(rows[1]["mode"], "zero1");
  EXPECT_EQ(rows[2]["mode"], "zero2");
  EXPECT_EQ(rows[3]["mode"], "zero3");
  EXPECT_EQ(rows[4]["mode"], "pipeline");
  EXPECT_GT(rows[3]["comm_bytes_per_device_per_step"], rows[1]["comm_bytes_per_device_per_step"]);
  expect_rejected(run("--workload run.json --topology dgx1-v100 --devices 4 --strategy pipeline"),
                  2, {"--devices", "2 layers"});
  expect_success(run(flags + " --strategy pipeline --pipeline-schedule 1f1b"));
  EXPECT_EQ(read_json(folder_ / "p.json")["config"]["pipeline_schedule"], "1f1b");
  expect_rejected(run(flags + " --strategy pipeline --pipeline-schedule interleaved"), 2,
                  {"2 layers", "4"});
}

TEST_F(Predict, AFamilysPipelineIsCutBetweenItsBlocks) {
  const std::string flags =
      "--family gpt:8-8-512-256 --step 0.1 --batch-per-gpu 4 --rows 1000 --topology "
      "dgx1-v100*2@100gbe --strategy pipeline --json p.json ";
  const Outcome outcome = run(flags + "--pipeline-schedule 1f1b --devices 1,4 --find step<1ms");
  expect_success(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("none of up to 16 Tesla V100"));  // 10 of them have a layer
  EXPECT_THAT(outcome.out, HasSubstr("limited by stages that wait for each"));
  const json rows = read_json(folder_ / "p.json")["rows"];
  // 16 micro-batches of one sample: 256 tokens of 512 channels forth, and as many gradients back.
  EXPECT_EQ(rows[1]["comm_bytes_per_device_per_step"], 2 * 16 * 256 * 512 * 4);
  // The first of four stages keeps a quarter of four micro-batches: one sample's activations.
  EXPECT_NEAR(rows[1]["memory_bytes"]["activations"].get<double>(),
              rows[0]["memory_bytes"]["activations"].get<double>() / 4, 1);
  expect_rejected(run(flags + "--devices 11"), 2, {"10 layers", "11 devices"});
  expect_rejected(run("--family resnet50 --step 0.1 --batch-per-gpu 4 --topology dgx1-v100 "
                      "--strategy pipeline --devices 2"),
                  2, {"not known of resnet50", "--workload"});
}

TEST_F(Predict, WorkloadsThatCannotBeTrueAreNamed) {
  const std::string flags = "--workload run.json --topology dgx1-v100";
  const std::string good = run_file(layer("0", 99, 10));
  write("run.json", good.substr(0, good.size() / 2));
  expect_rejected(run(flags), 1, {"'run.json', line 3", "truncated"});
  std::string tiny = good;
  write("run.json", tiny.replace(tiny.find("4000"), 4, "3"));
  expect_rejected(run(flags), 1, {"'run.json'", "4 bytes"});
  std::string timeless = good;
  write("run.json", timeless.replace(timeless.find("0.002"), 5, "0"));  // backward
  expect_rejected(run(flags), 1, {"'run.json'", "0 s backward"});
}

// "4 or 8 GPUs?"
constexpr char kNet[] = "--params 25.6M --step 0.097 --batch-per-gpu 32 --topology dgx1-v100 ";

TEST_F(Predict, ANetsSizeAndStepAnswerHowManyGpusPay) {
  const Outcome outcome = run(std::string(kNet) + "--devices 1,4,8 --json p.json");
  expect_success(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("4 GPUs: 3.8x (band 3.5x to 4.1x), 8 GPUs: 7.6x (band "));
  EXPECT_THAT(outcome.out, HasSubstr("weak scaling"));
  EXPECT_THAT(outcome.out, HasSubstr("limited by"));
  EXPECT_LT(outcome.out.find("limited by"), outcome.out.find("mode   devices"));
  const json file = read_json(folder_ / "p.json");
  ASSERT_EQ(file["rows"].size(), 3U);
  EXPECT_EQ(file["config"]["params"], 25.6e6);
  EXPECT_EQ(file["config"]["is_guessed"], false);
  for (const json& row : file["rows"]) {
    EXPECT_EQ(row["batch"], 32 * row["devices"].get<int>());
    EXPECT_LE(row["speedup_band"][0], row["speedup"]);
    EXPECT_GE(row["speedup_band"][1], row["speedup"]);
    EXPECT_LE(row["speedup"], row["devices"]);
  }
  EXPECT_NEAR(file["rows"][0]["step_seconds"], 0.097, 1e-9);
  EXPECT_NEAR(file["rows"][2]["step_seconds"], 0.104, 0.05 * 0.104) << "as published";
  expect_success(run_lockstep({"explain", "p.json"}, folder_.path()));
  expect_success(run_lockstep({"report", "p.json", "-o", "r.html"}, folder_.path()));
}

// A table of ResNet-50 on RTX 4090s (docs/prediction-record.md), whose method is assumed.
TEST_F(Predict, CardsWithoutPeerAccessLoseTimeInHostMemory) {
  const std::string flags =
      "--params 25.6M --step 0.0379 --batch-per-gpu 64 --topology rtx4090-pcie4-8 --devices 2,4 "
      "--strategy device_allreduce --json p.json";
  const Outcome outcome = run(flags + " --what-if peer_access=on");
  expect_success(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("through host memory: "));
  EXPECT_THAT(outcome.out, HasSubstr("PCIe with peer access: "));
  const json rows = read_json(folder_ / "p.json")["rows"];
  EXPECT_NEAR(rows[1]["speedup"], 1.66, 0.166);
  EXPECT_NEAR(rows[2]["speedup"], 2.51, 0.251);
  EXPECT_GT(rows[5]["speedup"], rows[2]["speedup"]) << "with peer access";
  expect_rejected(run(flags + " --what-if peer_access=maybe"), 2,
                  {"'maybe' is not a value of peer_access"});
}

TEST_F(Predict, HalfTheBytesOfGradientsAreAChange) {
  expect_success(
      run("--params 138M --step 0.05 --batch-per-gpu 64 --topology rtx3090-pcie4-8 "
          "--devices 8 --overlap off --what-if gradients=bf16 --json p.json"));
  const json rows = read_json(folder_ / "p.json")["rows"];
  EXPECT_NEAR(rows[3]["comm_bytes_per_device_per_step"].get<double>() /
                  rows[1]["comm_bytes_per_device_per_step"].get<double>(),
              0.5, 0.01);
  EXPECT_LT(rows[3]["step_seconds"], rows[1]["step_seconds"]);
}

// FSDP gathers bf16 parameters and sums float32 gradients; PyTorch's blocks are its units.
TEST_F(Predict, ParametersMayTravelInFewerBytesThanGradients) {
  const std::string flags =
      "--family gpt:12-12-768-1024 --params 130M --step 0.3 --batch-per-gpu 8 --topology dgx-a100 "
      "--devices 8 --strategy zero3 --json p.json ";
  expect_success(run(flags + "--what-if parameters=bf16 --trace t.json"));
  const json file = read_json(folder_ / "p.json");
  EXPECT_EQ(file["config"]["params"], 130e6);
  const auto bytes = [](const json& row) {
    return row["comm_bytes_per_device_per_step"].get<double>();
  };
  EXPECT_NEAR(bytes(file["rows"][1]) / (7.0 / 8 * 130e6), 3 * 4, 0.02);
  EXPECT_NEAR(bytes(file["rows"][3]) / (7.0 / 8 * 130e6), 2 + 2 + 4, 0.02);
  const json events = read_json(folder_ / "t.json")["traceEvents"];
  const auto gathers = std::ranges::count_if(events, [](const json& event) {
    return event.value("name", "") == "all-gather" && event.value("pid", -1) == 0;
  });
  EXPECT_EQ(gathers, 2 * (1 + 12 + 1)) << "embedding, blocks, head; forward and backward";

  expect_success(run(flags + "--accumulate 4"));
  EXPECT_EQ(bytes(read_json(folder_ / "p.json")["rows"][1]), 4 * bytes(file["rows"][1]));
  expect_success(run(flags + "--accumulate 4 --no-sync"));
  EXPECT_EQ(bytes(read_json(folder_ / "p.json")["rows"][1]), 3 * bytes(file["rows"][1]));
}

TEST_F(Predict, ANetsBatchMayBeShared) {
  expect_success(run(std::string(kNet) + "--devices 8 --what-if batch=64 --json p.json"));
  const json rows = read_json(folder_ / "p.json")["rows"];
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[3]["batch"], 64);
  EXPECT_LT(rows[3]["speedup"], rows[1]["speedup"]);
}

TEST_F(Predict, AStepThatIsNotGivenIsAGuessAndSaysSo) {
  const std::string flags =
      "--model resnet50 --batch-per-gpu 64 --topology dgx-a100 --json p.json ";
  std::vector<double> steps;
  for (const char* precision : {"fp32", "tf32", "bf16"}) {
    const Outcome outcome = run(flags + "--precision " + precision);
    expect_success(outcome);
    EXPECT_THAT(outcome.out, HasSubstr("a guess: "));
    EXPECT_THAT(outcome.out, HasSubstr("give --step"));
    const json config = read_json(folder_ / "p.json")["config"];
    EXPECT_EQ(config["is_guessed"], true);
    steps.push_back(config["step"]);
  }
  EXPECT_GT(steps[0], 4 * steps[1]);
  EXPECT_GT(steps[1], 1.5 * steps[2]);
  expect_success(run("--model gpt2 --batch-per-gpu 8 --topology dgx-a100*2@100gbe --devices 16"));
  expect_success(run("--model mlp:784-256-10 --batch-per-gpu 8 --topology dgx1-p100"));
}

// Devices of the CPU, which share its memory.
std::string four_cores() {
  std::string nodes = R"({"name": "cpu0", "kind": "cpu"})", links;
  for (const char* const core : {"core0", "core1", "core2", "core3"}) {
    nodes += std::string(R"(, {"kind": "device", "name": ")") + core + "\"}";
    links += std::string(links.empty() ? "" : ", ") +
             R"({"to": "cpu0", "kind": "memory", "gb_per_s": 10, "from": ")" + core + "\"}";
  }
  return R"({"schema": "lockstep.topology/1", "name": "cores", "source": "a test's",
"device": {"name": "core", "tflops": 0.1, "memory_gb_per_s": 10, "memory_gb": 8},
"host": {"gb_per_s": 20, "thread_gb_per_s": 8.9}, "nodes": [)" +
         nodes + "], \"links\": [" + links + "]}";
}

TEST_F(Predict, TheMemoryOfOurOwnNetsIsThatOfAStep) {
  write("cores.json", four_cores());
  expect_predicted_memory("--device cpu", (folder_ / "cores.json").string());
}

TEST_F(Predict, TheMemoryOfAStepOnACpuHasNoCudaInIt) {
  write("cores.json", four_cores());
  const Outcome outcome =
      run("--model mlp:784-256-10 --batch-per-gpu 8 --devices 2 --topology cores.json");
  EXPECT_THAT(outcome.out, HasSubstr("other: 5 %"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("CUDA")));
}

TEST_F(Predict, AFamilysAnswerSaysOnHowManyCardsItFits) {
  const Outcome outcome =
      run("--family llama:32-32-4096-4096 --batch-per-gpu 1 --topology "
          "dgx-a100 --modes ddp,zero3 --devices 1,8 --json p.json");
  expect_success(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("ddp does not fit on 1024 A100"));
  EXPECT_THAT(outcome.out, HasSubstr("zero3 fits on 4"));
  const json file = read_json(folder_ / "p.json");
  EXPECT_NEAR(file["config"]["params"], 6.738e9, 1e6) << "as Llama 2's 7B";
  EXPECT_EQ(file["rows"][1]["largest_batch"], 0);
  EXPECT_GE(file["rows"][2]["largest_batch"], 1);
  expect_rejected(run("--family mamba --step 1 --batch-per-gpu 1 --topology dgx-a100"), 2,
                  {"'mamba' is not one of resnet50, vit-b16, bert"});
  expect_rejected(run("--family gpt:12-12 --step 1 --batch-per-gpu 1 --topology dgx-a100"), 2,
                  {"'gpt:12-12' needs layers, heads, channels and tokens"});
  const Outcome unknown = run("--params 25M --step 1 --batch-per-gpu 1 --topology dgx-a100");
  EXPECT_THAT(unknown.out, HasSubstr("without activations: ddp fits on 1 A100"));
}

// The figures of advice are those of predictions with that change.
TEST_F(Predict, AnEpochStandsFirstAndThenWhatWouldShortenIt) {
  const std::string flags =
      "--params 25.6M --step 0.12 --batch-per-gpu 64 --rows 1281167 --topology rtx4090-pcie4-8 "
      "--devices 1,2,4,8 --json p.json";
  const Outcome outcome = run(flags + " --what-if gradients=bf16");
  expect_success(outcome);
  const std::size_t epoch = outcome.out.find("an epoch of 1281167 samples takes 40 min on 1 GPU");
  ASSERT_NE(epoch, std::string::npos) << outcome.out;
  EXPECT_LT(epoch, outcome.out.find("weak scaling"));
  const json rows = read_json(folder_ / "p.json")["rows"];
  const double steps = std::ceil(1281167 / 64.0 / 8);
  EXPECT_NEAR(rows[3]["median_epoch_seconds"], steps * rows[3]["step_seconds"].get<double>(), 1e-6);
  const double less =
      1 - rows[7]["step_seconds"].get<double>() / rows[3]["step_seconds"].get<double>();
  const std::string advice =
      outcome.out.substr(outcome.out.find("- gradients that travel in bf16:"));
  EXPECT_THAT(advice.substr(0, 100),
              HasSubstr(std::to_string(std::lround(100 * less)) + " % less"));
  EXPECT_THAT(outcome.out, HasSubstr("- peer access over PCIe: "));
  EXPECT_THAT(outcome.out, HasSubstr("- twice the batch (128 on each GPU): "));
  EXPECT_THAT(outcome.out, HasSubstr("- zero1: "));
}

TEST_F(Predict, AWishIsAnsweredWithTheSmallestNumberOfDevices) {
  const std::string flags =
      "--params 25.6M --step 0.12 --batch-per-gpu 64 --rows 1281167 --topology rtx4090-pcie4-8 "
      "--devices 4,5 --json p.json --find ";
  const auto find = [&](const std::string& wish) {
    std::vector<std::string> all = words("predict " + flags);
    all.push_back(wish);
    return run_lockstep(all, folder_.path());
  };
  EXPECT_THAT(find("epoch < 10min").out, HasSubstr("epoch < 10min: 5 RTX 4090 with ddp, 9."));
  const json rows = read_json(folder_ / "p.json")["rows"];
  EXPECT_GT(rows[1]["median_epoch_seconds"], 600);
  EXPECT_LT(rows[2]["median_epoch_seconds"], 600);
  EXPECT_THAT(find("step<1ms").out, HasSubstr("step<1ms: none of up to 8 RTX 4090"));
  for (const char* const wrong : {"epoch > 1h", "epoch < blue", "epoch < 1 parsec", "time < 1h"}) {
    expect_rejected(find(wrong), 2, {"epoch < 1h", wrong});
  }
  expect_rejected(run("--workload run.json --rows 5 --topology dgx-a100"), 2, {"--rows"});
}

TEST_F(Predict, HowPrintsTenLinesThatMeasureAStep) {
  const Outcome outcome = run("--how");
  expect_success(outcome);
  EXPECT_EQ(std::ranges::count(outcome.out, '\n'), 10);
  for (const char* const part :
       {"torch.cuda.Event", "synchronize", "warm-up", "sorted", "--step"}) {
    EXPECT_THAT(outcome.out, HasSubstr(part));
  }
}

TEST_F(Predict, AWorkloadsAnswerSaysWhatLimitsIt) {
  write("run.json", run_file(two_layers()));
  const Outcome outcome = run("--workload run.json --topology dgx1-v100 --devices 8");
  EXPECT_THAT(outcome.out, HasSubstr("strong scaling"));
  EXPECT_THAT(outcome.out, HasSubstr("limited by exposed communication"));
}

TEST_F(Predict, AnAllReduceIsPredictedInSeveralWays) {
  const Outcome outcome =
      run("--all-reduce 100M --topology hgx-h200-8 --devices 1,2,8 --json p.json");
  expect_success(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("an all-reduce of 100.0 MiB"));
  const json file = read_json(folder_ / "p.json");
  ASSERT_EQ(file["rows"].size(), 3U);
  EXPECT_TRUE(file["rows"][1]["nvls_seconds"].is_null());
  EXPECT_LT(file["rows"][2]["nvls_seconds"], file["rows"][2]["ring_seconds"]);
  EXPECT_LT(file["rows"][2]["ring_seconds"], file["rows"][2]["through_cpu_seconds"]);
  Fields fields;
  collect_fields(file, fields);
  expect_documented("lockstep.predicted-all-reduce/1", fields);
}

}  // namespace
}  // namespace lockstep::testing
