// `lockstep explain` on traces: recorded ones (traces/record.py), and damaged ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>

#include "tests/tools/formats_doc.h"
#include "tests/tools/run_lockstep.h"
#include "tests/tools/torch_trace/synthetic_trace.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string recorded(const std::string& name) {
  return std::string(LOCKSTEP_TRACES) + "/" + name + ".json.gz";
}

std::string unpacked(const std::string& path) {
  std::string text;
  gzFile file = gzopen(path.c_str(), "rb");
  char part[4096];
  for (int count; (count = gzread(file, part, sizeof(part))) > 0;) {
    text.append(part, static_cast<std::size_t>(count));
  }
  gzclose(file);
  return text;
}

Arguments explain(std::vector<std::string> files, Arguments more = {}) {
  files.insert(files.begin(), "explain");
  files.insert(files.end(), more.begin(), more.end());
  return files;
}

// The answer of --json about these files.
nlohmann::json explained(const std::vector<std::string>& files) {
  const TempFolder folder;
  const Outcome outcome = run_lockstep(explain(files, {"--json", "out.json"}), folder.path());
  expect_success(outcome);
  return read_json(folder / "out.json");
}

void expect_parts_add_up(const nlohmann::json& answer) {
  for (const nlohmann::json& rank : answer["ranks"]) {
    EXPECT_EQ(rank["steps"].size(), 3u);
    for (const nlohmann::json& step : rank["steps"]) {
      double sum = 0;
      for (const char* part :
           {"computation", "exposed_communication", "copies", "loader", "host", "idle"}) {
        EXPECT_GE(step[part].get<double>(), 0);
        sum += step[part].get<double>();
      }
      EXPECT_NEAR(sum, step["step"].get<double>(), 1e-9);
      EXPECT_GT(step["computation"].get<double>(), 0);
      EXPECT_GT(step["loader"].get<double>(), 0);
      EXPECT_GT(step["exposed_communication"].get<double>(), 0);
    }
  }
}

TEST(ExplainTraces, DdpOverGlooOnTwoRanks) {
  const nlohmann::json answer = explained({recorded("ddp2_rank0"), recorded("ddp2_rank1")});
  EXPECT_EQ(answer["schema"], "lockstep.torch-trace/1");
  expect_parts_add_up(answer);
  // The net has 784x1024 + 1024x1024 + 1024x10 weights and 2058 biases, in two buckets.
  double bytes = 0;
  for (const nlohmann::json& collective : answer["collectives"]) {
    EXPECT_EQ(collective["kind"], "all_reduce");
    bytes += collective["calls"].get<double>() * collective["bytes"].get<double>();
  }
  EXPECT_EQ(bytes, 4 * (784 * 1024 + 1024 * 1024 + 1024 * 10 + 2058));
}

TEST(ExplainTraces, NamesTheRankThatWasMadeSlowAndSinceWhen) {
  std::vector<std::string> files;
  for (const char* rank : {"2", "0", "3", "1"}) {
    files.push_back(recorded(std::string("ddp4_rank") + rank));
  }
  const Outcome outcome = run_lockstep(explain(files));
  expect_success(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("4 ranks, CPU, gloo, DistributedDataParallel, 3 steps"));
  EXPECT_THAT(outcome.out, HasSubstr("Rank 2: in 2 of 3 steps the others wait longest for it, in "
                                     "all since step #3"));
  EXPECT_THAT(outcome.out, HasSubstr("Its computation time is"));
  EXPECT_THAT(outcome.out, HasSubstr("even out the ranks: rank 2 is the last"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("Without rank")));
  expect_narrow(outcome.out);
}

TEST(ExplainTraces, FsdpGathersParametersInForwardAndBackward) {
  const nlohmann::json answer = explained({recorded("fsdp2_rank0"), recorded("fsdp2_rank1")});
  expect_parts_add_up(answer);
  double gathers = 0;
  for (const nlohmann::json& collective : answer["collectives"]) {
    if (collective["kind"] == "all_gather") gathers += collective["calls"].get<double>();
  }
  EXPECT_EQ(gathers, 6) << "three layers, twice each";
}

TEST(ExplainTraces, EveryFieldIsDocumented) {
  const TempFolder folder;
  SyntheticTrace trace;
  trace.step(0, 0, 1000).kernel("gemm", 0, 400);
  write_text(folder / "gpu.json", trace.text());
  Fields fields;
  collect_fields(explained({(folder / "gpu.json").string()}), fields);
  std::vector<std::string> files;
  for (const char* rank : {"0", "2", "3"})
    files.push_back(recorded(std::string("ddp4_rank") + rank));
  collect_fields(explained(files), fields);
  expect_documented("lockstep.torch-trace/1", fields);
}

TEST(ExplainTraces, APackedFileSaysTheSameAsAPlainOne) {
  const TempFolder folder;
  write_text(folder / "plain.json", unpacked(recorded("ddp2_rank0")));
  nlohmann::json plain = explained({(folder / "plain.json").string()});
  nlohmann::json packed = explained({recorded("ddp2_rank0")});
  EXPECT_EQ(plain["ranks"][0]["steps"], packed["ranks"][0]["steps"]);
  EXPECT_EQ(plain["collectives"], packed["collectives"]);
}

TEST(ExplainTraces, OneRankOfFourSaysWhatCannotBeTold) {
  const Outcome outcome = run_lockstep(explain({recorded("ddp4_rank1")}));
  expect_success(outcome);
  EXPECT_THAT(outcome.out,
              HasSubstr("Without ranks 0, 2, 3 of 4: waiting for other ranks counts as"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("The slowest rank")));
}

TEST(ExplainTraces, ComparesNcclWithTheLinksOfATopology) {
  const TempFolder folder;
  SyntheticTrace trace(0, 8);
  trace.step(0, 0, 1000).kernel("gemm", 0, 400).nccl_all_reduce(400, 500, 25'000'000, 8);
  write_text(folder / "trace.json", trace.text());
  const std::string text =
      run_well("explain trace.json --topology hgx-h100-8 --json out.json", folder.path());
  EXPECT_THAT(text, HasSubstr("NVIDIA H100 80GB HBM3"));
  const nlohmann::json collective = read_json(folder / "out.json")["collectives"][0];
  EXPECT_NEAR(collective["bus_bytes_per_second"].get<double>(), 1.75 * 1e8 / 500e-6, 1);
  run_well("predict --all-reduce 100000000 --topology hgx-h100-8 --devices 8 --json p.json",
           folder.path());
  const nlohmann::json row = read_json(folder / "p.json")["rows"][0];
  const double ring = row["ring_seconds"], nvls = row["nvls_seconds"];
  const double link = collective["link_seconds"];
  EXPECT_LE(link, std::min(ring, nvls) * 1.0001);
  EXPECT_GT(link, std::min(ring, nvls) / 2);
}

void expect_refused(const std::vector<std::string>& files, const std::vector<std::string>& phrases,
                    int exit_code = 1) {
  expect_rejected(run_lockstep(explain(files)), exit_code, phrases);
}

TEST(ExplainTraces, RefusesWhatIsNoTrace) {
  const TempFolder folder;
  const auto file = [&](const char* name, const std::string& text) {
    write_text(folder / name, text);
    return (folder / name).string();
  };
  const std::string whole = unpacked(recorded("ddp2_rank0"));
  expect_refused({file("cut.json", whole.substr(0, whole.size() / 2))},
                 {"cut.json' is cut off after", "events: copy it again"});
  std::ifstream packed(recorded("ddp2_rank0"), std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(packed), {});
  expect_refused({file("cut.json.gz", bytes.substr(0, bytes.size() / 2))},
                 {"cut.json.gz' is cut off"});
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x55);
  expect_refused({file("damaged.json.gz", bytes)}, {"damaged.json.gz'"});
  expect_refused({file("list.json", "{\"schemaVersion\": 1, \"traceEvents\": [1, }")},
                 {"list.json' is not JSON at byte"});
  expect_refused({file("no_steps.json", SyntheticTrace().kernel("gemm", 0, 1).text())},
                 {"no_steps.json' has no steps", "schedule=torch.profiler.schedule("});
}

TEST(ExplainTraces, RefusesFilesThatDoNotBelongTogether) {
  const TempFolder folder;
  write_text(folder / "other_run.json", SyntheticTrace(1, 8).step(2, 0, 9).text());
  write_text(folder / "other_steps.json",
             SyntheticTrace(1, 2, "gloo").step(77, 0, 9).op("aten::mm", 1, 2).text());
  Json without_rank = SyntheticTrace(1, 2, "gloo").step(2, 0, 9).json();
  without_rank.erase("distributedInfo");
  write_text(folder / "no_rank.json", without_rank.dump());
  const std::string first = recorded("ddp2_rank0");
  const auto file = [&](const char* name) { return (folder / name).string(); };
  expect_refused({first, first}, {"are both of rank 0: give one file of each rank"});
  expect_refused({first, file("other_run.json")}, {"(2 ranks)", "(8 ranks)", "are of two runs"});
  expect_refused({first, recorded("fsdp2_rank1")}, {"(2 ranks)", "(2 ranks, FSDP)", "two runs"});
  expect_refused({first, file("other_steps.json")}, {"have no step in common"});
  expect_refused({first, file("no_rank.json")}, {"no_rank.json' doesn't say its rank"});
  expect_refused({first, file("missing.json")}, {"cannot read '", "No such file"});
  write_text(folder / "run.json", "{}");
  expect_refused({file("run.json"), first}, {"takes one run file, or traces"}, 2);
  expect_refused({first, file("run.json")}, {"run.json' is no trace"});
  expect_refused({file("run.json"), "--topology", "dgx-a100"}, {"--topology belong to traces"}, 2);
  write_text(folder / "eight.json", SyntheticTrace(0, 8)
                                        .step(0, 0, 1000)
                                        .kernel("gemm", 0, 400)
                                        .nccl_all_reduce(400, 500, 1000, 8)
                                        .text());
  expect_refused({file("eight.json"), "--topology", "t4-cloud-4"},
                 {"'t4-cloud-4' has 4 devices, and collectives here have 8 ranks"}, 2);
}

// A step of 1000 us on an H100: 600 of computation, 300 exposed, 100 idle; two buckets.
SyntheticTrace trace_of_h100() {
  SyntheticTrace trace(0, 8);
  trace.step(0, 0, 1000)
      .kernel("gemm", 0, 500)
      .nccl_all_reduce(400, 200, 5'000'000, 8)
      .kernel("gemm", 600, 100)
      .nccl_all_reduce(700, 200, 10'000'000, 8);
  return trace;
}

nlohmann::json predicted_from(const SyntheticTrace& trace, const std::string& flags) {
  const TempFolder folder;
  write_text(folder / "trace.json", trace.text());
  run_well("predict --from-trace trace.json --json out.json " + flags, folder.path());
  return read_json(folder / "out.json")["rows"];
}

TEST(PredictFromTrace, TakesTheStepWithoutExposedCommunicationAndTheBuckets) {
  const nlohmann::json rows =
      predicted_from(trace_of_h100(), "--topology hgx-h100-8 --devices 1,8");
  EXPECT_NEAR(rows[0]["step_seconds"].get<double>(), 700e-6, 5e-6);
  EXPECT_GT(rows[1]["step_seconds"].get<double>(), 700e-6);
  EXPECT_NEAR(rows[1]["comm_bytes_per_device_per_step"].get<double>(), 1.75 * 60e6, 1e4);
}

TEST(PredictFromTrace, ScalesComputationByThePeaksOfBothGpus) {
  const nlohmann::json rows = predicted_from(trace_of_h100(), "--topology dgx-a100 --devices 1");
  EXPECT_NEAR(rows[0]["step_seconds"].get<double>(), 100e-6 + 600e-6 * 66.9 / 19.5, 5e-6);
}

TEST(PredictFromTrace, OneGpusTraceNeedsTheNumberOfParameters) {
  SyntheticTrace alone;
  alone.step(0, 0, 1000).kernel("gemm", 0, 500);
  const nlohmann::json rows =
      predicted_from(alone, "--params 25.6M --topology hgx-h100-8 --devices 1,2");
  EXPECT_NEAR(rows[0]["step_seconds"].get<double>(), 1e-3, 1e-6);
  const TempFolder folder;
  write_text(folder / "trace.json", alone.text());
  expect_rejected(
      run_command("predict --from-trace trace.json --topology hgx-h100-8", folder.path()), 2,
      {"sends no gradients", "--params 25.6M"});
}

TEST(PredictFromTrace, RefusesMessagesWithoutSizesAndASecondStep) {
  const TempFolder folder;
  SyntheticTrace trace(0, 2);
  trace.step(0, 0, 1000).kernel("gemm", 0, 500).kernel("ncclDevKernel_AllReduce", 500, 10);
  write_text(folder / "trace.json", trace.text());
  const std::string command = "predict --from-trace trace.json --topology hgx-h100-8";
  expect_rejected(run_command(command, folder.path()), 1, {"record it with record_shapes=True"});
  expect_rejected(run_command(command + " --step 0.1", folder.path()), 2,
                  {"--from-trace", "has its own step"});
}

}  // namespace
}  // namespace lockstep::testing
