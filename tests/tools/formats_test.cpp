// docs/formats.md documents every field of the files that the program writes, and no other.
#include <gtest/gtest.h>

#include "tests/tools/formats_doc.h"
#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using nlohmann::json;

class Formats : public ::testing::Test {
 protected:
  // Runs the command, and collects the fields of the file that it writes.
  void collect(const std::string& command) {
    const Outcome outcome = run_command(command + " --json file.json", folder_.path());
    ASSERT_EQ(outcome.exit_code, 0) << command << "\n" << outcome.err;
    collect_fields(read_json(folder_ / "file.json"), fields_);
  }

  TempFolder folder_;
  Fields fields_;
};

TEST_F(Formats, OfRunFiles) {
  for (const char* command :
       {"compare --modes dp,ddp --devices 1,2 --model mlp:64-16-10 --batch 60 --interrupt",
        "compare --modes ddp --devices 2 --ranks processes --steps 30",
        "compare --modes ddp --devices 2 --per-device-batch 8,16 --steps 3",
        "train --device-ids 1,0 --parallel dp --threads-per-device 1 --per-device-batch 32 "
        "--clip-norm 1 --steps 3 --save w.safetensors --log l.jsonl --trace t.json",
        "compare --act-as dgx1-v100 --predict --modes dp,ddp --devices 2 --steps 3",
        "train --optimizer adamw --init w.safetensors --steps 3",
        "train --model resnet18:4 --batch 8 --steps 1"}) {
    collect(command);
  }
  expect_documented("lockstep.run/1", fields_);
}

TEST_F(Formats, OfBenchStep) {
  collect("bench step --model mlp:8-4 --batch 4 --seconds 0.001 --memory");
  expect_documented("lockstep.bench-step/1", fields_);
}

TEST_F(Formats, OfStepWork) {
  collect("bench step --work --model mlp:8-4 --batch 4 --card H200");
  expect_documented("lockstep.step-work/1", fields_);
}

TEST_F(Formats, OfBenchAllReduce) {
  for (const char* flags : {"", "-c", "-c --ranks processes"}) {
    collect(std::string("bench all-reduce -b 4K -e 8K -n 2 ") + flags);
  }
  expect_documented("lockstep.bench-all-reduce/1", fields_);
}

TEST_F(Formats, OfTheLog) {
  run_well("train --steps 3 --log log.jsonl", folder_.path());
  for (const std::string& line : lines_of(read_text(folder_ / "log.jsonl"))) {
    collect_fields(json::parse(line), fields_);
  }
  expect_documented("--log", fields_);
}

}  // namespace
}  // namespace lockstep::testing
