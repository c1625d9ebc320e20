// `lockstep with-devices`: who gets which GPUs, when, and what becomes of the locks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/support/fake_nvidia_smi/fake_machine.h"
#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kStranger = 1 << 30;

// with-devices with these flags, then a shell script.
Arguments with_devices(const std::string& flags, const std::string& script) {
  Arguments arguments = words("with-devices " + flags + " -- sh -c");
  arguments.push_back(script);
  return arguments;
}

const std::string kPrintGpus = "echo $CUDA_VISIBLE_DEVICES";

// Runs lockstep with-devices while the test goes on; its errors are among its output.
class Running : public MarkedProgram {
 public:
  Running(const std::string& flags, const std::string& script)
      : MarkedProgram(command(flags, script)) {}

  // True as soon as it has written these words; false after 20 seconds.
  bool says(const std::string& text) const {
    return wait_until([&] { return out().find(text) != std::string::npos; });
  }

 private:
  static Arguments command(const std::string& flags, const std::string& script) {
    Arguments arguments{"sh", "-c", "exec \"$0\" \"$@\" 2>&1", LOCKSTEP_PROGRAM};
    for (const std::string& word : with_devices(flags, script)) arguments.push_back(word);
    return arguments;
  }
};

TEST(WithDevices, RunsTheCommandOnTheFirstIdleGpus) {
  FakeMachine machine(4);
  for (std::size_t i = 0; i < 4; ++i) machine.gpu(i)["memory"]["used"] = 0;
  machine.set_processes(1, {kStranger});
  const Outcome outcome = run_lockstep(with_devices("2", kPrintGpus));
  expect_success(outcome);
  EXPECT_EQ(outcome.out, fake_uuid(0) + "," + fake_uuid(2) + "\n");
}

TEST(WithDevices, TakesGpusThatNvidiaSmiListsBesideAWarningAndAnUnknownField) {
  FakeMachine machine(2);
  machine.set_processes(0, {kStranger});
  machine.gpu(1)["memory"]["used"] = 0;
  machine.description["warns"] = {{"exit_code", 14}, {"says", "WARNING: infoROM is corrupted"}};
  machine.description["unknown_fields"] = {"utilization.gpu"};
  machine.publish();
  const Outcome outcome = run_lockstep(with_devices("1", kPrintGpus));
  expect_success(outcome);
  EXPECT_EQ(outcome.out, fake_uuid(1) + "\n");
}

TEST(WithDevices, PassesWordsOnAsTheyAreAndReturnsTheExitCode) {
  const FakeMachine machine(1);
  const Outcome outcome = run_lockstep({"with-devices", "1", "--", "sh", "-c",
                                        "printf '<%s>' \"$@\"; exit 7", "name", "--lr=", "", "--"});
  EXPECT_EQ(outcome.exit_code, 7);
  EXPECT_EQ(outcome.out, "<--lr=><><-->");
  EXPECT_EQ(outcome.err, "");
}

TEST(WithDevices, ChoosesAmongTheVisibleGpus) {
  FakeMachine machine(3);
  machine.gpu(2)["memory"]["used"] = 0;
  machine.publish();
  ::setenv("CUDA_VISIBLE_DEVICES", "2", 1);
  EXPECT_EQ(run_lockstep(with_devices("1", kPrintGpus)).out, fake_uuid(2) + "\n");
  expect_rejected(
      run_lockstep(with_devices("2", kPrintGpus)), 2,
      {"[with-devices] asks for 2 GPUs, and there is 1; hidden by CUDA_VISIBLE_DEVICES=2: "});
}

TEST(WithDevices, GivesNoGpuOfWhichOneSliceIsVisible) {
  const FakeMachine machine(2);
  ::setenv("CUDA_VISIBLE_DEVICES", ("MIG-" + fake_uuid(1) + "/1/0").c_str(), 1);
  expect_rejected(run_lockstep(with_devices("1", kPrintGpus)), 2,
                  {"[with-devices] asks for 1 GPU, and there are 0; "});
  // A slice behind a whole GPU hides only itself.
  ::setenv("CUDA_VISIBLE_DEVICES", ("0,MIG-" + fake_uuid(1) + "/1/0").c_str(), 1);
  EXPECT_EQ(run_lockstep(with_devices("1", kPrintGpus)).out, fake_uuid(0) + "\n");
}

TEST(WithDevices, WaitsUntilTheProcessLeavesAndSaysSoOnce) {
  FakeMachine machine(1);
  machine.set_processes(0, {kStranger});
  Running program("1", kPrintGpus);
  const std::string waiting = "lockstep: waiting for 1 idle GPU: GPU 0 used by pid 1073741824\n";
  EXPECT_TRUE(program.says(waiting));
  machine.set_processes(0, {});
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, ::testing::MatchesRegex(waiting + "lockstep: got them after .* s\n" +
                                                   fake_uuid(0) + "\n"));
}

TEST(WithDevices, LimitsDecideWhatIsIdle) {
  FakeMachine machine(1);
  machine.gpu(0)["memory"]["used"] = std::size_t{600} << 20;
  machine.gpu(0)["utilization.gpu"] = 40;
  machine.publish();
  expect_rejected(run_lockstep(with_devices("1 --timeout 0", "true")), 1,
                  {"[with-devices] waited 0 s for 1 idle GPU", "GPU 0 has 600 MiB in use"});
  expect_rejected(run_lockstep(with_devices("1 --timeout 0 --max-used-mib 700", "true")), 1,
                  {"GPU 0 is 40 % utilised"});
  const std::string flags = "1 --timeout 0 --max-used-mib 700 --max-utilization 50";
  expect_success(run_lockstep(with_devices(flags, "true")));
  // A figure that the GPU does not report is not held against it.
  for (const char* key : {"memory", "utilization.gpu", "processes"}) machine.gpu(0).erase(key);
  machine.publish();
  expect_success(run_lockstep(with_devices("1 --timeout 0", "true")));
}

TEST(WithDevices, TwoProgramsNeverShareAGpu) {
  FakeMachine machine(2);
  machine.gpu(1)["memory"]["used"] = 0;
  machine.publish();
  Running first("1", kPrintGpus + "; exec sleep 60");
  EXPECT_TRUE(first.says(fake_uuid(0)));
  Running second("1", kPrintGpus + "; exec sleep 60");
  EXPECT_TRUE(second.says(fake_uuid(1)));
  expect_rejected(run_lockstep(with_devices("1 --timeout 0", "true")), 1,
                  {"GPU 0 locked by pid " + std::to_string(first.process()),
                   "GPU 1 locked by pid " + std::to_string(second.process())});
}

TEST(WithDevices, TheLockLastsAsLongAsTheCommand) {
  const FakeMachine machine(1);
  Running first("1", "echo running; exec sleep 60");
  EXPECT_TRUE(first.says("running"));
  Running second("1", "echo mine");
  EXPECT_TRUE(second.says("GPU 0 locked by pid " + std::to_string(first.process())));
  first.send(SIGKILL);
  EXPECT_EQ(first.wait().exit_code, 128 + SIGKILL);
  EXPECT_THAT(second.wait().out, ::testing::EndsWith("\nmine\n"));
}

TEST(WithDevices, AWaiterHoldsNothingWhileItWaits) {
  FakeMachine machine(2);
  machine.gpu(1)["memory"]["used"] = 0;
  machine.set_processes(1, {kStranger});
  Running waiter("2", kPrintGpus);
  EXPECT_TRUE(waiter.says("waiting for 2 idle GPUs: GPU 1 used by"));
  EXPECT_EQ(run_lockstep(with_devices("1", kPrintGpus)).out, fake_uuid(0) + "\n");
  machine.set_processes(1, {});
  EXPECT_THAT(waiter.wait().out,
              ::testing::EndsWith("\n" + fake_uuid(0) + "," + fake_uuid(1) + "\n"));
}

TEST(WithDevices, FilesAndFolderAreForAllUsers) {
  const FakeMachine machine(1);
  const mode_t before = ::umask(077);
  expect_success(run_lockstep(with_devices("1", "true")));
  ::umask(before);
  struct stat found {};
  ASSERT_EQ(::stat(machine.lock_folder().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 01777u);
  const std::filesystem::path file = machine.lock_folder() / (fake_uuid(0) + ".lock");
  ASSERT_EQ(::stat(file.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0666u);
}

TEST(WithDevices, ALockFolderThatIsNoneIsAnError) {
  const FakeMachine machine(1);
  write_text(machine.lock_folder(), "");
  expect_rejected(run_lockstep(with_devices("1", "true")), 1, {"is not a folder"});
}

TEST(WithDevices, RejectsWhatItCannotDoBeforeItWaits) {
  FakeMachine machine(1);
  machine.set_processes(0, {kStranger});
  expect_rejected(run_lockstep(words("with-devices 1")), 2, {"say what to run"});
  expect_rejected(run_lockstep(words("with-devices 1 --")), 2, {"say what to run"});
  expect_rejected(run_lockstep(words("with-devices 0 -- true")), 2, {"must be at least 1"});
  expect_rejected(run_lockstep(words("with-devices many -- true")), 2, {"many"});
  expect_rejected(run_lockstep(words("with-devices -- true")), 2, {"N is missing"});
  expect_rejected(run_lockstep(words("with-devices 1 --timeout -1 -- true")), 2, {"[--timeout]"});
  expect_rejected(run_lockstep(words("with-devices 1 -- no-such-program")), 2,
                  {"there is no program 'no-such-program' in PATH"});
  expect_rejected(run_lockstep(words("with-devices 1 -- ./nowhere")), 2, {"./nowhere"});
  ::setenv("LOCKSTEP_FAKE_GPUS", "/nowhere.json", 1);
  expect_rejected(run_lockstep(words("with-devices 1 -- true")), 1,
                  {"cannot find out which GPUs are idle: nvidia-smi says "});
}

}  // namespace
}  // namespace lockstep::testing
