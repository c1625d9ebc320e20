// docs/formats.md documents every field of the files that the program writes, and no other.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/tools/formats_doc.h"
#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using nlohmann::json;

class Formats : public ::testing::Test {
 protected:
  void run(const std::string& arguments) {
    const Outcome outcome = run_lockstep(words(arguments), folder_.path());
    ASSERT_EQ(outcome.exit_code, 0) << arguments << "\n" << outcome.err;
  }
  void collect(const std::string& file) { collect_fields(read_json(folder_ / file), fields_); }

  TempFolder folder_;
  Fields fields_;
};

TEST_F(Formats, OfRunFiles) {
  run("compare --modes dp,ddp --devices 1,2 --model mlp:64-16-10 --batch 60 --interrupt --json "
      "run.json");
  collect("run.json");
  run("compare --modes ddp --devices 2 --ranks processes --steps 30 --json run.json");
  collect("run.json");
  run("compare --modes ddp --devices 2 --per-device-batch 8,16 --steps 3 --json run.json");
  collect("run.json");
  run("train --device-ids 1,0 --parallel dp --threads-per-device 1 --per-device-batch 32 "
      "--clip-norm 1 --steps 3 --save w.safetensors --log l.jsonl --trace t.json "
      "--json run.json");
  collect("run.json");
  run("compare --act-as dgx1-v100 --predict --modes dp,ddp --devices 2 --steps 3 --json run.json");
  collect("run.json");
  run("train --optimizer adamw --init w.safetensors --steps 3 --json run.json");
  collect("run.json");
  run("train --model resnet18:4 --batch 8 --steps 1 --json run.json");
  collect("run.json");
  expect_documented("lockstep.run/1", fields_);
}

TEST_F(Formats, OfBenchStep) {
  run("bench step --model mlp:8-4 --batch 4 --seconds 0.001 --memory --json bench.json");
  collect("bench.json");
  expect_documented("lockstep.bench-step/1", fields_);
}

TEST_F(Formats, OfBenchAllReduce) {
  for (const char* flags : {"-c 0", "-c 1", "-c 1 --ranks processes"}) {
    run(std::string("bench all-reduce -b 4K -e 8K -n 2 --json bench.json ") + flags);
    collect("bench.json");
  }
  expect_documented("lockstep.bench-all-reduce/1", fields_);
}

TEST_F(Formats, OfTheLog) {
  run("train --steps 3 --log log.jsonl");
  std::ifstream log(folder_ / "log.jsonl");
  for (std::string line; std::getline(log, line);) collect_fields(json::parse(line), fields_);
  expect_documented("--log", fields_);
}

}  // namespace
}  // namespace lockstep::testing
