// lockstep predict: against published figures, on a run's workload, and on files that are wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "tests/tools/formats_doc.h"
#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const char kScaling[] = "set,hardware,interconnect,model,strategy,batch_per_gpu,gpus,value,unit\n";
const char kModels[] =
    "model,parameters,gradient_MB,forward_GFLOP_per_sample\nvgg,138357544,553,15.5\n"
    "resnet50,25557032,102,4.1\n";

std::string run_file(const std::string& layers) {
  return R"({"schema": "lockstep.run/1", "config": {"device": "cpu", "model": "mlp:784-4096-10"},
"rows": [{"mode": "single", "devices": 1, "batch": 1024, "step_seconds": 0.07, "iterations": 30, "epoch_seconds": [1, 1]}],
"workload": {"batch": 1024, "input_bytes_per_row": 3136, "host_seconds_per_op": 1e-6,
"optimizer_seconds": 1e-3, "ready_order": ["0.weight"],
"layers": [)" +
         layers + "]}}";
}

std::string layer(const std::string& name, std::size_t bytes) {
  return json{{"name", name},
              {"forward_seconds", 1e-3},
              {"backward_seconds", 2e-3},
              {"parameter_bytes", bytes}}
      .dump();
}

class Predict : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }
  Outcome run(const std::string& arguments) {
    return run_lockstep(words("predict " + arguments), folder_.path());
  }

  TempFolder folder_;
};

// Absolute errors of the file's rows, by the set and whatever `of` adds to it.
template <typename Key>
std::map<std::string, std::vector<double>> errors_by(const json& file, Key key) {
  std::map<std::string, std::vector<double>> errors;
  for (const json& row : file["rows"]) {
    errors[key(row)].push_back(std::abs(row["error"].get<double>()));
  }
  return errors;
}

double mean(const std::vector<double>& values) {
  double total = 0;
  for (const double value : values) total += value;
  return total / static_cast<double>(values.size());
}

double largest(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end());
}

class Published : public Predict {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(file("scaling.csv"))) {
      GTEST_SKIP() << "no published tables at " << file("scaling.csv");
    }
  }
  static std::string file(const std::string& name) {
    return std::string(LOCKSTEP_SOURCE) + "/../shared/validation/" + name;
  }
};

TEST_F(Published, ScalingIsPredictedFromOneDevice) {
  expect_success(
      run("--table " + file("scaling.csv") + " --models " + file("models.csv") + " --json p.json"));
  const json predicted = read_json(folder_ / "p.json");
  EXPECT_EQ(predicted["schema"], "lockstep.prediction/1");
  auto errors = errors_by(predicted, [](const json& row) { return row["set"].get<std::string>(); });
  EXPECT_LE(mean(errors["A"]), 0.12);
  EXPECT_LE(mean(errors["B"]), 0.05);
  EXPECT_LE(largest(errors["B"]), 0.10);
  EXPECT_LE(mean(errors["D"]), 0.05);
  EXPECT_LE(largest(errors["D"]), 0.10);
  std::size_t num_superlinear = 0;
  for (const json& row : predicted["rows"]) {
    num_superlinear += row["superlinear"].get<bool>() ? 1 : 0;
    if (row["set"] == "A" && row["model"] == "vgg") {
      // One TITAN X takes 14545 s: through the host more, by the devices less.
      EXPECT_EQ(row["predicted"] > 14545, row["strategy"] == "cpu_reduce") << row;
    }
  }
  EXPECT_GE(num_superlinear, 1U);
}

TEST_F(Published, SmallNetsGetSlowerAndLargeOnesFaster) {
  const Outcome outcome = run("--table " + file("scaling.csv") + " --models " + file("models.csv"));
  EXPECT_THAT(outcome.out, HasSubstr("right in 3 of 3 rows"));
}

TEST_F(Published, AllReducesBetweenFittedRows) {
  expect_success(run("--table " + file("allreduce.csv") + " --json p.json"));
  auto errors = errors_by(read_json(folder_ / "p.json"),
                          [](const json& row) { return row["hardware"].get<std::string>(); });
  EXPECT_EQ(errors.size(), 5U);
  for (const auto& [hardware, values] : errors) {
    EXPECT_LE(mean(values), 0.10) << hardware;
    EXPECT_LE(largest(values), 0.20) << hardware;
  }
}

TEST_F(Predict, ATableWithoutAOneDeviceRowIsNamedWithItsLine) {
  write("m.csv", kModels);
  write("t.csv", std::string(kScaling) + "A,V100,NVLink2,vgg,ddp,32,2,0.1,seconds_per_iteration\n");
  expect_rejected(run("--table t.csv --models m.csv"), 1,
                  {"'t.csv', line 2", "no 1-device row", "vgg"});
}

TEST_F(Predict, AnUnknownModelUnitStrategyOrHardwareIsNamedWithItsLine) {
  write("m.csv", kModels);
  const std::string good = "A,V100,NVLink2,vgg,ddp,32,1,0.1,seconds_per_iteration\n";
  const std::map<std::string, std::string> rows = {
      {"A,V100,NVLink2,resnet51,ddp,32,2,0.1,seconds_per_iteration", "did you mean 'resnet50'"},
      {"A,V100,NVLink2,vgg,zero,32,2,0.1,seconds_per_iteration", "'zero' is not one of"},
      {"A,V100,NVLink2,vgg,ddp,32,2,0.1,parsecs", "unit 'parsecs'"},
      {"A,V100,NVLink2,vgg,ddp,32,2,-0.1,seconds_per_iteration", "value must be a positive"},
      {"A,V100,NVLink2,vgg,ddp,32,2.5,0.1,seconds_per_iteration", "gpus must be"},
      {"A,V100,NVLink2,vgg,ddp,32", "the header has 9 columns, this row 6"}};
  for (const auto& [row, phrase] : rows) {
    write("t.csv", kScaling + good + "\n" + row + "\n");
    expect_rejected(run("--table t.csv --models m.csv"), 1, {"'t.csv', line 4", phrase});
  }
  write("t.csv", std::string(kScaling) + "A,X9,wet string,vgg,ddp,32,1,1,seconds_per_iteration\n" +
                     "A,X9,wet string,vgg,ddp,32,2,1,seconds_per_iteration\n");
  expect_rejected(run("--table t.csv --models m.csv"), 1, {"'t.csv', line 3", "wet string"});
}

TEST_F(Predict, AnUnknownGpuIsTakenByItsInterconnect) {
  write("m.csv", kModels);
  write("t.csv", std::string(kScaling) + "A,X9,PCIe4,resnet50,ddp,32,1,300,images_per_second\n" +
                     "A,X9,PCIe4,resnet50,ddp,32,4,1100,images_per_second\n");
  expect_success(run("--table t.csv --models m.csv --json p.json"));
  const json row = read_json(folder_ / "p.json")["rows"][0];
  EXPECT_EQ(row["topology"], "rtx4090-pcie4-8");
  EXPECT_GT(row["predicted"], 300);
  EXPECT_LT(row["predicted"], 1200);
}

TEST_F(Predict, EveryFieldOfItsFileIsDocumented) {
  write("m.csv", kModels);
  write("t.csv", std::string(kScaling) + "A,V100,NVLink2,vgg,ddp,32,1,0.1,seconds_per_iteration\n" +
                     "A,V100,NVLink2,vgg,ddp,32,2,0.1,seconds_per_iteration\n");
  write("r.csv",
        "hardware,interconnect,algorithm,gpus,bytes,value,unit\n"
        "A100,NVSwitch,nccl default,8,1048576,102,microseconds\n");
  Fields fields;
  for (const char* flags : {"--table t.csv --models m.csv", "--table r.csv"}) {
    expect_success(run(std::string(flags) + " --json p.json"));
    collect_fields(read_json(folder_ / "p.json"), fields);
  }
  expect_documented("lockstep.prediction/1", fields);
}

TEST_F(Predict, ARunsWorkloadHasRowsOfKindPredicted) {
  write("run.json", run_file(layer("0", 785 * 4096 * 4) + "," + layer("2", 4097 * 10 * 4)));
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

TEST_F(Predict, AThousandDevicesAreNoMoreWorkThanEight) {
  std::string layers = layer("0", 50257 * 768 * 4);
  for (int i = 1; i <= 48; ++i) layers += "," + layer(std::to_string(2 * i), 7'100'000);
  write("run.json", run_file(layers));
  expect_success(
      run("--workload run.json --topology hgx-h100-8*128@8x400gbe --devices 8,1024 "
          "--strategy ddp --json p.json"));
  EXPECT_EQ(read_json(folder_ / "p.json")["rows"].size(), 3U);
}

TEST_F(Predict, FilesOfOthersAreNamedWithTheirLine) {
  const std::string good = run_file(layer("0", 4000));
  const std::string flags = "--workload run.json --topology dgx1-v100";
  write("run.json", good);
  expect_success(run(flags));
  write("run.json", good.substr(0, good.size() / 2));
  expect_rejected(run(flags), 1, {"'run.json', line 3", "truncated"});
  write("run.json", R"({"schema": "lockstep.bench-step/1"})");
  expect_rejected(run(flags), 1, {"'run.json', line 1", "lockstep.bench-step/1"});
  write("run.json", R"({"traceEvents": []})");
  expect_rejected(run(flags), 1, {"'run.json', line 1", "this is a timeline"});
  write("run.json", run_file(layer("0", 3)));
  expect_rejected(run(flags), 1, {"'run.json', line 5", "4 bytes"});
  write("run.json", run_file(layer("2", 4000)));
  expect_rejected(run(flags), 1, {"'run.json', line 4", "'0.weight' is a parameter of no layer"});
}

TEST_F(Predict, WrongWordsAreUsageErrors) {
  write("run.json", run_file(layer("0", 4000)));
  expect_rejected(run(""), 2, {"--table", "--workload"});
  expect_rejected(run("--workload run.json"), 2, {"--topology"});
  expect_rejected(run("--workload run.json --topology dgx2"), 2, {"dgx1-v100"});
  expect_rejected(run("--workload run.json --topology dgx1-v100 --devices 16"), 2,
                  {"8 devices", "NAME*HOSTS@100gbe"});
  expect_rejected(run("--workload run.json --topology dgx1-v100 --what-if luck=2"), 2, {"luck=2"});
  expect_rejected(run("--workload run.json --topology dgx1-v100 --strategy zero"), 2, {"zero"});
}

}  // namespace
}  // namespace lockstep::testing
