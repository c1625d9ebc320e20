// Ctrl-C and SIGTERM: what is done is written, on every rank after the same step, and a second one
// ends at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

// Longer than any test waits.
constexpr const char* kTraining = "train --model mlp:64-8-10 --steps 100000000 --json run.json ";

bool catches_sigint(pid_t process) {
  const std::string status = read_text("/proc/" + std::to_string(process) + "/status");
  const std::string key = "SigCgt:";
  const std::size_t at = status.find(key);
  return at != std::string::npos &&
         (std::stoull(status.substr(at + key.size()), nullptr, 16) >> (SIGINT - 1)) % 2 == 1;
}

class Interrupt : public ::testing::Test {
 protected:
  static Arguments program(const std::string& arguments) {
    return words(std::string(LOCKSTEP_PROGRAM) + " " + arguments);
  }
  // Waits for whole epochs, or rows of the table.
  static void wait_for_lines(const MarkedProgram& program, const std::string& begin,
                             std::size_t num_lines) {
    EXPECT_TRUE(wait_until([&] { return count_of(program.out(), begin) >= num_lines; }))
        << program.out();
  }
  static void expect_nothing_left(const MarkedProgram& program) {
    EXPECT_TRUE(wait_until([&] { return program.num_alive() == 0; }));
  }
  Outcome interrupt(const std::string& arguments, const std::string& line, std::size_t count,
                    int signal = SIGINT) {
    MarkedProgram running(program(arguments), {}, folder_.path());
    wait_for_lines(running, line, count);
    running.send(signal);
    Outcome outcome = running.wait();
    EXPECT_EQ(outcome.exit_code, 128 + signal) << arguments << "\n" << outcome.err;
    expect_nothing_left(running);
    return outcome;
  }
  json run_file() const { return read_json(folder_ / "run.json"); }

  TempFolder folder_;
};

TEST_F(Interrupt, EndsATrainingAfterAStepAndWritesItsFiles) {
  for (const std::string flags : {"", "--parallel dp --devices 2", "--parallel ddp --devices 3",
                                  "--parallel ddp --devices 2 --ranks processes",
                                  "--parallel ddp --devices 2 --shard parameters",
                                  "--parallel pipeline --stages 2 --devices 2",
                                  "--parallel pipeline --stages 2 --devices 2 --ranks processes"}) {
    for (const int signal : {SIGINT, SIGTERM}) {
      for (const auto& entry : fs::directory_iterator(folder_.path())) fs::remove_all(entry);
      const Outcome outcome = interrupt(
          kTraining + ("--save w.safetensors --log log.jsonl " + flags), "epoch ", 2, signal);
      EXPECT_THAT(outcome.err, HasSubstr("; wrote w.safetensors, run.json, log.jsonl\n"));
      const json file = run_file();
      const std::size_t done = file["interrupted"]["done"];
      EXPECT_EQ(file["interrupted"]["signal"], signal == SIGINT ? "SIGINT" : "SIGTERM");
      EXPECT_EQ(file["interrupted"]["unit"], "steps");
      EXPECT_EQ(file["interrupted"]["planned"], 100000000);
      const json& row = file["rows"][0];
      EXPECT_EQ(row["iterations"], done);
      EXPECT_EQ(row["epoch_seconds"].size(), done / 24) << "an unfinished epoch is none of them";
      EXPECT_EQ(row.contains("unfinished_epoch_seconds"), done % 24 != 0);
      const std::string log = read_text(folder_ / "log.jsonl");
      EXPECT_EQ(std::ranges::count(log, '\n'), done) << flags;
      EXPECT_TRUE(fs::exists(folder_ / "w.safetensors"));
    }
  }
}

TEST_F(Interrupt, WithinTheFirstEpochNoEpochIsTimed) {
  const std::string flags =
      std::string(kTraining) + "--dataset synthetic:1000000x64x10 --batch 8 --log log.jsonl";
  MarkedProgram running(program(flags), {}, folder_.path());
  EXPECT_TRUE(wait_until([&] {  // the log has another name until its end
    return std::ranges::any_of(fs::directory_iterator(folder_.path()), [](const auto& entry) {
      return entry.is_regular_file() && entry.file_size() > 0;
    });
  }));
  running.send(SIGINT);
  EXPECT_EQ(running.wait().exit_code, 130);
  const json row = run_file()["rows"][0];
  EXPECT_TRUE(row["epoch_seconds"].empty());
  EXPECT_TRUE(row["median_epoch_seconds"].is_null());
  EXPECT_TRUE(row["test_accuracy"].is_null());
  EXPECT_GT(row["unfinished_epoch_seconds"], 0);
  for (const std::string command : {"explain", "report"}) {
    const Outcome reader = run_lockstep({command, "run.json"}, folder_.path());
    EXPECT_EQ(reader.exit_code, 0) << reader.err;
    EXPECT_THAT(reader.out, HasSubstr("interrupted by SIGINT after ")) << command;
  }
}

TEST_F(Interrupt, ACheckpointGoesOnToTheSameBits) {
  for (const std::string flags : {"", "--parallel ddp --devices 2 --ranks processes"}) {
    fs::remove_all(folder_ / "kept");
    const std::string kept =
        flags + " --checkpoint-dir kept --checkpoint-every 100000000 --optimizer adamw";
    interrupt(kTraining + kept, "epoch ", 2);
    const std::size_t done = run_file()["interrupted"]["done"];
    const std::string all = "train --model mlp:64-8-10 --steps " + std::to_string(done + 30) + " ";
    const Outcome resumed = run_command(all + kept + " --resume auto", folder_.path());
    const Outcome undisturbed = run_command(all + flags + " --optimizer adamw");
    EXPECT_THAT(resumed.out, HasSubstr("resumed after step " + std::to_string(done)));
    ASSERT_NE(weights_digest(resumed.out), "") << resumed.err;
    EXPECT_EQ(weights_digest(resumed.out), weights_digest(undisturbed.out));
  }
}

TEST_F(Interrupt, LockstepRunPassesItOnAndARankThatAloneGetsItTellsTheOthers) {
  const std::string job = std::string("run --standalone --nproc-per-node 2 -- ") +
                          LOCKSTEP_PROGRAM + " " + kTraining + "--parallel ddp";
  EXPECT_THAT(interrupt(job, "epoch ", 2).err, HasSubstr("; wrote run.json"));
  fs::remove(folder_ / "run.json");
  const std::string alone = std::string(kTraining) + "--parallel ddp --comm-timeout 300";
  MarkedProgram running(
      {LOCKSTEP_PROGRAM, "run", "--standalone", "--nproc-per-node", "2", "--", "sh", "-c",
       "echo $$ > pid.$RANK; exec " + std::string(LOCKSTEP_PROGRAM) + " " + alone},
      {}, folder_.path());
  wait_for_lines(running, "epoch ", 2);
  ::kill(std::stoi(read_text(folder_ / "pid.1")), SIGINT);
  EXPECT_EQ(running.wait().exit_code, 130);
  EXPECT_EQ(run_file()["interrupted"]["signal"], "SIGINT");
  expect_nothing_left(running);
}

TEST_F(Interrupt, CompareWritesTheRowsThatAreDone) {
  for (const std::string ranks : {"threads", "processes"}) {
    // The first rows are short; the others have too many rows for any test's patience.
    const Outcome outcome = interrupt(
        "compare --modes dp,ddp --devices 1,2 --epochs 200 --model mlp:64-8-10 --json run.json "
        "--ranks " +
            ranks,
        "\nsingle", 1);
    EXPECT_THAT(outcome.out, HasSubstr("single"));
    const json file = run_file();
    EXPECT_EQ(file["interrupted"]["unit"], "rows");
    EXPECT_EQ(file["interrupted"]["done"], file["rows"].size());
    EXPECT_EQ(file["interrupted"]["planned"], 5);
    for (const json& row : file["rows"]) EXPECT_FALSE(row["verdict"].is_null());
    const Outcome predicted =
        run_command("predict --workload run.json --topology dgx-a100", folder_.path());
    EXPECT_THAT(predicted.out + predicted.err, HasSubstr("interrupted by SIGINT after "));
  }
}

TEST_F(Interrupt, CompareWithoutAWholeRowWritesNothing) {
  const Outcome outcome =
      interrupt("compare --modes dp --devices 2 --epochs 100000 --json run.json", "speed-up", 1);
  EXPECT_THAT(outcome.err, HasSubstr("after 0 of 2 rows; wrote nothing\n"));
  EXPECT_FALSE(fs::exists(folder_ / "run.json"));
}

// The row at work ends soon, and all of them are more than any test waits for.
TEST_F(Interrupt, BenchWritesTheRowsThatAreDone) {
  std::string batches = "4";
  for (int batch = 5; batch < 500; ++batch) batches += "," + std::to_string(batch);
  const std::string step = "step --model mlp:8-4 --seconds 0.1 --batch " + batches;
  const std::string sums = "all-reduce -b 4K -e 64M -n 10 --link 10ms,1MB/s";
  for (const std::string& flags : {step, sums, sums + " --ranks processes"}) {
    SCOPED_TRACE(flags);
    const std::string row = flags == step ? "\nmlp:8-4 " : "\n        4096 ";
    interrupt("bench " + flags + " --json run.json", row, 1);
    const json file = run_file();
    EXPECT_EQ(file["interrupted"]["unit"], "rows");
    EXPECT_EQ(file["interrupted"]["done"], file["rows"].size());
  }
}

// A message takes so long over the modelled link that no step ends meanwhile.
TEST_F(Interrupt, ASecondSignalEndsAtOnce) {
  MarkedProgram running(program("train --parallel ddp --devices 2 --link 20s,1GB/s --comm-timeout "
                                "300 --save w.safetensors"),
                        {}, folder_.path());
  EXPECT_TRUE(wait_until([&] { return catches_sigint(running.process()); }));
  EXPECT_TRUE(wait_until([&] {
    running.send(SIGINT);
    return running.num_alive() == 0;
  }));
  EXPECT_EQ(running.wait().exit_code, 130);
  EXPECT_FALSE(fs::exists(folder_ / "w.safetensors"));
}

}  // namespace
}  // namespace lockstep::testing
