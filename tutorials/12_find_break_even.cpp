// 12: Why can two devices train more slowly than one?
//
// A second device halves the rows that each has to compute, but not the time: a kernel takes some
// microseconds to start, however few its rows are, and the gradients have to travel in each step,
// as many bytes as before. With too few rows the second device costs more than it saves.
//
// You will see: what you expect, if you say so; what a step of one device and of two consists of on
// a machine that is not here, predicted for small and for large batches; from which batch on the
// second device pays; and the same steps in slow motion: devices of the CPU take the places of that
// machine's GPUs, train for real, and are as slow as those, times a factor (`lockstep train
// --act-as`). Everything runs on the CPU.
//
// Run:  12_find_break_even [--guess 1|2|3] [--machine dgx-a100]
//                          [--model mlp:64-256-256-10] [--fast]
//
// Expected output with --fast: tutorials/expected/12.txt

#include <cmath>
#include <string>

#include "engine/core/error.h"
#include "tutorials/acted.h"
#include "tutorials/common.h"

namespace {

using namespace lockstep;
using tutorial::Training;

constexpr const char* kModel = "mlp:64-256-256-10";
constexpr int kSmallBatch = 64;
constexpr int kLargeBatch = 32768;
constexpr double kTolerance = 0.1;

std::string machine = tutorial::kMachine;  // --machine
std::string model = kModel;                // --model

// A step of one device, or of two under DDP: each computes half of the rows.
Training steps_of(int num_devices, int batch) {
  return {.model = model, .batch = batch, .num_devices = num_devices};
}

// How long one step is, in seconds.
struct StepTimes {
  double one = 0;
  double two = 0;
};

StepTimes predict_both(const predict::Topology& topology, int batch) {
  return {tutorial::predict_training(topology, steps_of(1, batch)).step_seconds,
          tutorial::predict_training(topology, steps_of(2, batch)).step_seconds};
}

bool two_are_faster(const StepTimes& times) {
  return times.two < times.one;
}

tutorial::Guess guess("A step on two devices, compared with a step on one, is ...",
                      {"about half as long", "shorter, but not by half", "longer"});

// The right guess, by the prediction.
int right_guess(const StepTimes& times) {
  if (!two_are_faster(times)) return 3;
  return times.two < 0.6 * times.one ? 1 : 2;
}

void print_parts(const predict::Topology& topology, int batch, int num_devices) {
  const auto step = tutorial::predict_training(topology, steps_of(num_devices, batch));
  const trace::StepBreakdown& parts = step.breakdown;
  const double kernels = parts.forward + parts.backward + parts.optimizer;
  fmt::print("{:>7} {:>9} {:>8.1f} us {:>8.1f} us {:>8.1f} us {:>8.1f} us\n", batch, num_devices,
             1e6 * kernels, 1e6 * parts.exposed_comm,
             1e6 * (parts.step - kernels - parts.exposed_comm), 1e6 * parts.step);
}

void predict_parts(const predict::Topology& topology) {
  fmt::print("   rows   devices     kernels     exposed       other        step\n");
  for (int batch = kSmallBatch; batch <= kLargeBatch; batch *= 8) {
    print_parts(topology, batch, 1);
    print_parts(topology, batch, 2);
  }
  tutorial::say(
      "exposed: exposed communication, which is the part of the all-reduce that no computation "
      "hides; other: the loss, and waiting for each other");
  const auto two = tutorial::predict_training(topology, steps_of(2, kSmallBatch));
  tutorial::say(fmt::format(
      "Two devices send each other {:.0f} KiB of gradients in every step, whatever the batch. A "
      "kernel with half the rows is shorter, but never shorter than its launch, {:.0f} us.",
      two.comm_bytes_per_device / 1024, 1e6 * topology.device.launch_seconds));
}

// The fewest rows, an even number, with which two devices are predicted to be faster.
// Throws Error{Usage} where they are not with kLargeBatch.
int find_break_even(const predict::Topology& topology) {
  require(two_are_faster(predict_both(topology, kLargeBatch)), ErrorCode::Usage, "--model",
          "{} computes so little that two devices are slower even with {} rows; take wider layers",
          model, kLargeBatch);
  int slower = 0, faster = kLargeBatch / 2;  // halves
  while (slower + 1 < faster) {
    const int middle = (slower + faster) / 2;
    (two_are_faster(predict_both(topology, 2 * middle)) ? faster : slower) = middle;
  }
  return 2 * faster;
}

// Steps of one device and of two, in slow motion. Prints both lines and says whether they are as
// predicted.
struct Acted {
  StepTimes times;
  double largest_error = 0;
};

Acted act_out_both(const predict::Topology& topology, int batch, int num_steps) {
  Acted acted;
  for (const int num_devices : {1, 2}) {
    const Training training = steps_of(num_devices, batch);
    const double predicted = tutorial::predict_training(topology, training).step_seconds;
    const tutorial::ActedSteps steps = tutorial::act_out(topology, training, num_steps);
    (num_devices == 1 ? acted.times.one : acted.times.two) = steps.step_seconds;
    const double error = std::abs(steps.step_seconds / predicted - 1);
    acted.largest_error = std::max(acted.largest_error, error);
    fmt::print("{:>7} {:>9} {:>8.1f} us {:>8.1f} us {:>13}\n", batch, num_devices, 1e6 * predicted,
               1e6 * steps.step_seconds, fmt::format("1 : {:.0f}", steps.factor));
  }
  return acted;
}

void run(const tutorial::Options& options) {
  const predict::Topology topology = predict::find_topology(machine);
  tutorial::step(1, "guess");
  fmt::print("{}: {}\n{}, {} rows a step; on two devices DDP: {} rows each\n", machine,
             topology.device.name, model, kSmallBatch, kSmallBatch / 2);
  guess.ask(options);

  tutorial::step(2, "predict where the time of a step goes");
  predict_parts(topology);
  const int break_even = find_break_even(topology);
  const StepTimes small = predict_both(topology, kSmallBatch);
  fmt::print("predicted: two devices are faster from {} rows on\n", break_even);
  guess.judge(right_guess(small), fmt::format("with {} rows two take {:.2f} times as long as one",
                                              kSmallBatch, small.two / small.one));
  if (machine == tutorial::kMachine && model == kModel) {
    tutorial::check(fmt::format("two devices are slower than one with {} rows and faster with {}",
                                kSmallBatch, kLargeBatch),
                    !two_are_faster(small) && two_are_faster(predict_both(topology, kLargeBatch)));
  }

  tutorial::step(3, "steps in slow motion, on both sides of the break-even");
  tutorial::say(tutorial::describe_slow_motion(topology));
  const int num_steps = options.fast ? 3 : 8;
  const int few = std::max(2, break_even / 4 * 2), many = 2 * break_even;
  fmt::print("   rows   devices   predicted slow motion        factor\n");
  const Acted below = act_out_both(topology, few, num_steps);
  const Acted above = act_out_both(topology, many, num_steps);
  tutorial::check_times("in slow motion, every step is within 10 % of the prediction",
                        std::max(below.largest_error, above.largest_error) <= kTolerance);
  tutorial::check_times(
      fmt::format("two devices are slower with {} rows, and faster with {}", few, many),
      !two_are_faster(below.times) && two_are_faster(above.times));
  tutorial::answer(
      fmt::format(
          "The second device halves the rows of every kernel and adds an all-reduce of the "
          "same {:.0f} KiB whatever the batch. With {} rows two devices take {:.2f} times as long "
          "as one, with {} rows {:.2f} times. Predicted: they pay off from {} rows on.",
          tutorial::predict_training(topology, steps_of(2, few)).comm_bytes_per_device / 1024, few,
          below.times.two / below.times.one, many, above.times.two / above.times.one, break_even),
      {{"--machine titanx-pascal-dual-root-8",
        "GPUs joined by PCIe alone: how many rows does the second one need there?"},
       {"--guess 2 --model mlp:64-512-512-10", "more to compute, and more to send: who wins?"}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  const auto add_flags = [](Flags& flags, Options&) {
    guess.add_flag(flags);
    flags.add_text("--machine", machine, "a topology, as of lockstep predict");
    flags.add_text("--model", model, "what is trained");
  };
  return run_main(argc, argv, "Why can two devices train more slowly than one?", run,
                  {.num_devices = 2, .add_flags = add_flags, .hardware = Setup::Hardware::cpu});
}
