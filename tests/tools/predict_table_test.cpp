// lockstep predict --table: against published figures, and on tables that are wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tests/tools/formats_doc.h"
#include "tests/tools/predict_fixture.h"

namespace lockstep::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const char kScaling[] = "set,hardware,interconnect,model,strategy,batch_per_gpu,gpus,value,unit\n";
const char kModels[] =
    "model,parameters,gradient_MB,forward_GFLOP_per_sample\nvgg,138357544,553,15.5\n"
    "resnet50,25557032,102,4.1\n";

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
  expect_rejected(run("--table t.csv --models m.csv"), 1, {"'t.csv', line 3", "'X9' names no GPU"});
}

// Hardware, interconnect and number of GPUs of a table's row, and the machine that it is taken for.
struct Machine {
  const char* hardware;
  const char* interconnect;
  int gpus;
  const char* taken;  // or a part of the error
};

std::string table_of(const Machine& machine) {
  const std::string row =
      std::string("A,") + machine.hardware + "," + machine.interconnect + ",resnet50,ddp,32,";
  return kScaling + row + "1,300,images_per_second\n" + row + std::to_string(machine.gpus) +
         ",1100,images_per_second\n";
}

TEST_F(Predict, HardwareIsTakenForTheMachineOfItsGpu) {
  write("m.csv", kModels);
  for (const Machine& machine :
       std::vector<Machine>{{"Tesla P100 (Pascal) DGX-1", "NVLink1", 4, "dgx1-p100"},
                            {"TITAN X (Pascal)", "PCIe3", 4, "titanx-pascal-dual-root-8"},
                            {"TITAN X", "PCIe3", 4, "titanx-maxwell-dual-root-8"},
                            {"GTX1080Ti Pascal", "PCIe Gen3", 4, "gtx1080ti-pcie3-8"},
                            {"V100 PCIe3 server", "", 4, "gtx1080ti-pcie3-8 with Tesla V100"},
                            {"A100-PCIE-40GB", "PCIe4", 4, "rtx4090-pcie4-8 with A100"},
                            {"T4", "PCIe 3.0", 4, "gtx1080ti-pcie3-8 with T4"},
                            {"PCIe3 box", "PCIe3", 4, "pcie3-switches-8"},
                            {"GTX 1080 Ti x4", "PCIe3", 4, "gtx1080ti-pcie3-8"},
                            {"4x V100", "NVLink2", 4, "dgx1-v100"},
                            {"A100 DGX x16", "200GbE", 8, "dgx-a100"},
                            {"V100 DGX-1 x2", "2.5GbE", 16, "dgx1-v100*2@2.5gbe"},
                            {"H100 HGX", "NVLink4 + 8x400GbE", 32, "hgx-h100-8*4@8x400gbe"},
                            {"GTX 1080 Ti server x4", "Gloo 10GbE", 4, "gtx1080ti-pcie3-8*4@10gbe"},
                            {"GTX 1080 Ti", "PCIe Gen3 + 25GbE", 16, "gtx1080ti-pcie3-8*2@25gbe"},
                            {"V100", "12.5 GB/s", 16, "dgx1-v100*2@100gbe"},
                            {"V100", "0.1GbE", 16, "dgx1-v100*2@0.1gbe"},
                            {"V100", "1e3GbE", 16, "dgx1-v100*2@1000gbe"},
                            {"V100", "2x100 Gb/s", 16, "dgx1-v100*2@2x100gbe"}}) {
    write("t.csv", table_of(machine));
    const Outcome outcome = run("--table t.csv --models m.csv --json p.json");
    expect_success(outcome);
    const json file = read_json(folder_ / "p.json");
    EXPECT_EQ(file["rows"][0]["topology"], machine.taken) << machine.hardware;
    EXPECT_THAT(outcome.out, HasSubstr(std::string(": as ") + machine.taken));
  }
}

TEST_F(Predict, HardwareThatNoPresetIsLikeIsRefusedWithTheReason) {
  write("m.csv", kModels);
  for (const Machine& machine : std::vector<Machine>{
           {"Quadro P1000", "PCIe3", 4, "names no GPU that is known: K80"},
           {"Xeon", "PCIe3", 4, "names no GPU that is known"},
           {"GTX 980 Ti", "PCIe3", 4, "names no GPU that is known"},
           {"V100 DGX-2", "NVSwitch", 8, "joined by an NVSwitch"},
           {"A6000", "NVLink3", 4, "joined by NVLink3"},
           {"RTX 3090", "NVLink3", 2, "joined by NVLink3"},
           {"V100", "NVLink2", 16, "16 GPUs are 2 hosts of 'dgx1-v100' with 8 each"},
           {"V100", "NVLink2 300 GB/s", 16, "no speed of the network"}}) {
    write("t.csv", table_of(machine));
    expect_rejected(run("--table t.csv --models m.csv"), 1, {"'t.csv', line 3", machine.taken});
  }
}

TEST_F(Predict, StrategiesOfTablesAreReadHoweverTheyAreWritten) {
  write("m.csv", kModels);
  for (const char* name : {"DDP", "Horovod", "DistributedDataParallel", "NCCL-Replicated"}) {
    const std::string row = std::string("A,V100,NVLink2,resnet50,") + name + ",32,";
    write("t.csv",
          kScaling + row + "1,300,images_per_second\n" + row + "2,500,images_per_second\n");
    expect_success(run("--table t.csv --models m.csv"));
  }
  std::string text = table_of({"V100 DGX-1", "100GbE", 16, ""});
  for (std::size_t at; (at = text.find(",ddp,")) != std::string::npos;) {
    text.replace(at, 5, ",DataParallel,");
  }
  write("t.csv", text);
  expect_rejected(run("--table t.csv --models m.csv"), 1, {"line 3", "one process", "8 a host"});
}

TEST_F(Predict, ColumnsStayApartWhateverTheValues) {
  write("m.csv", kModels);
  const std::string row = "A,V100,NVLink2,resnet50,ddp,32,";
  write("t.csv", kScaling + row + "1,300,images_per_second\n" + row +
                     "2,0.00001,images_per_second\n" + row + "4,1e12,images_per_second\n" + row +
                     "8,290,images_per_second\n");
  const Outcome outcome = run("--table t.csv --models m.csv");
  expect_success(outcome);
  EXPECT_THAT(outcome.out, HasSubstr(" 1.00e-05 "));
  EXPECT_THAT(outcome.out, HasSubstr(" 1.00e+12 "));
  EXPECT_THAT(outcome.out, HasSubstr("  >9999 %"));
  for (std::size_t begin = 0; begin < outcome.out.size();) {
    const std::size_t end = outcome.out.find('\n', begin);
    EXPECT_LE(end - begin, 80U) << outcome.out.substr(begin, end - begin);
    begin = end + 1;
  }
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

}  // namespace
}  // namespace lockstep::testing
