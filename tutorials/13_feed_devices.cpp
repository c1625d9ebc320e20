// 13: Why can eight devices need longer for an epoch than four, and what keeps all of them busy?
//
// People report it of servers with eight TITAN X: an epoch under DataParallel takes longer on eight
// than on four. Device 0 sends the rows and the weights to all others and collects what they
// computed, through one PCIe link; each device more gives it more to send, and leaves each of the
// others less to compute. Such a server is the subject, so this program does not take the DGX A100
// of the others, where NVLink joins all GPUs. Which TITAN X it is, reports seldom say: here it is
// the Pascal one.
//
// You will see: what DataParallel makes of that server on one device, two, four and eight,
// predicted; the same in slow motion, on four and on eight (`lockstep train --act-as`); and what
// helps, predicted for all, in slow motion for one. The network is that of the HIGGS data set's
// paper: 28 features, five layers of 300 units.
// Source: P. Baldi, P. Sadowski, D. Whiteson, Searching for exotic particles in high-energy physics
// with deep learning, Nature Communications 5, 2014.
//
// Run:  13_feed_devices [--machine titanx-pascal-dual-root-8] [--batch 8192]
//                       [--model mlp:28-300-300-300-300-300-2] [--fast]
//
// Expected output with --fast: tutorials/expected/13.txt

#include <cmath>
#include <string>

#include "engine/nn/models.h"
#include "tutorials/acted.h"
#include "tutorials/common.h"

namespace {

using namespace lockstep;
using predict::PredictedStep;
using tutorial::ActedSteps;
using tutorial::Training;

constexpr const char* kMachine = "titanx-pascal-dual-root-8";
constexpr const char* kModel = "mlp:28-300-300-300-300-300-2";
constexpr int kBatch = 8192;
constexpr int kEpochRows = 10'500'000;  // HIGGS has 11 million, of which half a million test
constexpr double kBucketMib = 0.25;
constexpr double kOneBucketMib = 1000;
constexpr double kTolerance = 0.1;
constexpr double kLeastGain = 1.1;  // DDP on eight against DataParallel on four

std::string machine = kMachine;  // --machine
std::string model = kModel;      // --model
int batch = kBatch;              // --batch

bool is_default() {
  return machine == kMachine && model == kModel && batch == kBatch;
}

Training data_parallel(int num_devices, int rows) {
  return {model, rows, num_devices, predict::Strategy::data_parallel};
}

Training ddp(int num_devices, int rows, double bucket_mib) {
  return {
      .model = model, .batch = rows, .num_devices = num_devices, .ddp = {.bucket_mib = bucket_mib}};
}

// The last step of an epoch may have fewer rows.
int steps_of_epoch(int rows) {
  return (kEpochRows + rows - 1) / rows;
}

double epoch_seconds(double step_seconds, int rows) {
  return step_seconds * steps_of_epoch(rows);
}

// Steps of DataParallel.
struct FourAndEight {
  double four_seconds = 0;
  double eight_seconds = 0;
  double eight_busy = 0;
};

// This tutorial's subject.
bool is_starved(const FourAndEight& steps) {
  return steps.eight_busy < 0.5 && steps.eight_seconds > steps.four_seconds;
}

FourAndEight predict_data_parallel(const predict::Topology& topology) {
  FourAndEight result;
  fmt::print("devices    kernels     copies  gradients       step      epoch   busy\n");
  for (const int num_devices : {1, 2, 4, 8}) {
    const PredictedStep step =
        tutorial::predict_training(topology, data_parallel(num_devices, batch));
    const trace::StepBreakdown& parts = step.breakdown;
    fmt::print("{:>7} {:>7.1f} us {:>7.1f} us {:>7.1f} us {:>7.1f} us {:>8.2f} s {:>4.0f} %\n",
               num_devices, 1e6 * (parts.forward + parts.backward + parts.optimizer),
               1e6 * parts.copy, 1e6 * parts.exposed_comm, 1e6 * step.step_seconds,
               epoch_seconds(step.step_seconds, batch), 100 * step.busy_fraction);
    if (num_devices == 4) result.four_seconds = step.step_seconds;
    if (num_devices == 8) {
      result.eight_seconds = step.step_seconds;
      result.eight_busy = step.busy_fraction;
    }
  }
  fmt::print(
      "copies: rows and weights from device 0; gradients: exposed communication, back\n"
      "to it, where they are summed\n");
  return result;
}

constexpr const char* kActedHead =
    "              devices     predicted        slow motion     epoch    factor\n";

// Runs a training in slow motion, prints its line beside the prediction, and keeps the largest
// error.
ActedSteps act_out(const predict::Topology& topology, const char* name, const Training& training,
                   int num_steps, double& largest_error) {
  const PredictedStep predicted = tutorial::predict_training(topology, training);
  ActedSteps acted = tutorial::act_out(topology, training, num_steps);
  fmt::print("{:<16} {:>3} {:>8.1f} us {:>4.0f} % {:>8.1f} us {:>4.0f} % {:>7.2f} s {:>9}\n", name,
             training.num_devices, 1e6 * predicted.step_seconds, 100 * predicted.busy_fraction,
             1e6 * acted.step_seconds, 100 * acted.busy_fraction,
             epoch_seconds(acted.step_seconds, training.batch),
             fmt::format("1 : {:.0f}", acted.factor));
  largest_error =
      std::max(largest_error, std::abs(acted.step_seconds / predicted.step_seconds - 1));
  return acted;
}

// The ways out, for eight devices.
void predict_remedies(const predict::Topology& topology) {
  struct Remedy {
    const char* name;
    Training training;
  };
  const Remedy remedies[] = {
      {"DataParallel", data_parallel(8, batch)},
      {"DataParallel, four times the rows", data_parallel(8, 4 * batch)},
      {"DDP, one bucket", ddp(8, batch, kOneBucketMib)},
      {"DDP, buckets during backward", ddp(8, batch, kBucketMib)},
      {"the same, four times the rows", ddp(8, 4 * batch, kBucketMib)},
  };
  fmt::print("predicted, eight devices             rows        step      epoch   busy\n");
  for (const auto& [name, training] : remedies) {
    const PredictedStep step = tutorial::predict_training(topology, training);
    fmt::print("{:<34} {:>6} {:>8.1f} us {:>8.2f} s {:>4.0f} %\n", name, training.batch,
               1e6 * step.step_seconds, epoch_seconds(step.step_seconds, training.batch),
               100 * step.busy_fraction);
  }
}

// By which links device 0 feeds the seven others.
std::string describe_links(const predict::Topology& topology) {
  const int by_nvlink = tutorial::count_nvlink_peers(topology, 8);
  if (by_nvlink == 0) return "Device 0 feeds the other seven through its one PCIe link";
  if (by_nvlink == 7) return "Device 0 feeds the other seven by NVLink";
  return fmt::format("Device 0 feeds {} of the other seven by NVLink and the rest by PCIe",
                     by_nvlink);
}

// Says in words what the figures show for this machine, network and batch.
std::string explain(const predict::Topology& topology, const FourAndEight& slow,
                    const ActedSteps& remedy) {
  return fmt::format(
      "{}. An epoch takes {:.2f} s on four devices and {:.2f} s on eight, which are busy {:.0f} % "
      "of the time{}. With DDP all send at once, during backward: {:.2f} s, busy {:.0f} %.",
      describe_links(topology), epoch_seconds(slow.four_seconds, batch),
      epoch_seconds(slow.eight_seconds, batch), 100 * slow.eight_busy,
      slow.eight_seconds > slow.four_seconds ? ", because it sends more and they compute less" : "",
      epoch_seconds(remedy.step_seconds, batch), 100 * remedy.busy_fraction);
}

void run(const tutorial::Options& options) {
  const predict::Topology topology = predict::find_topology(machine);
  const int num_steps = options.fast ? 2 : 6;
  if (machine == kMachine) {
    tutorial::say(
        "People report this of servers with eight TITAN X, so such a one takes the place of the "
        "DGX A100 of the other programs, where NVLink joins all GPUs.");
  }
  fmt::print("{}, {} parameters, {} rows a step\n", model, nn::make_mlp(model, 0)->num_parameters(),
             batch);
  fmt::print("an epoch has {} rows, as the HIGGS data set has to train on: {} steps\n", kEpochRows,
             steps_of_epoch(batch));

  tutorial::step(1, "DataParallel, predicted");
  const FourAndEight predicted = predict_data_parallel(topology);
  const std::string claim = "eight devices are slower than four, and busy less than half";
  if (is_default()) tutorial::check(claim + " of the time", is_starved(predicted));

  tutorial::step(2, "DataParallel, in slow motion");
  double largest_error = 0;
  tutorial::say(tutorial::describe_slow_motion(topology));
  tutorial::say(describe_links(topology) + ".");
  fmt::print("{}", kActedHead);
  const ActedSteps four =
      act_out(topology, "DataParallel", data_parallel(4, batch), num_steps, largest_error);
  const ActedSteps eight =
      act_out(topology, "DataParallel", data_parallel(8, batch), num_steps, largest_error);
  const FourAndEight acted{four.step_seconds, eight.step_seconds, eight.busy_fraction};
  if (is_default()) tutorial::check_times("in slow motion, " + claim, is_starved(acted));

  tutorial::step(3, "what helps");
  predict_remedies(topology);
  fmt::print("{}", kActedHead);
  const ActedSteps remedy =
      act_out(topology, "DDP with buckets", ddp(8, batch, kBucketMib), num_steps, largest_error);
  if (is_default()) {
    tutorial::check_times("in slow motion, every step is within 10 % of the prediction",
                          largest_error <= kTolerance);
    tutorial::check_times(
        fmt::format("DDP on eight devices is at least {} times as fast as DataParallel on four",
                    kLeastGain),
        acted.four_seconds >= kLeastGain * remedy.step_seconds);
  }
  tutorial::answer(
      explain(topology, acted, remedy),
      {{"--machine dgx1-v100", "some NVLinks, which step 2 counts: is device 0 still too slow?"},
       {"--batch 2048", "less to compute for the same weights: which row is the fastest?"}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  const auto add_flags = [](Flags& flags, Options&) {
    flags.add_text("--machine", machine, "a topology of eight devices or more in one host");
    flags.add_text("--model", model, "what is trained");
    flags.add_number("--batch", batch, 8, 1 << 17, "rows of a step, a multiple of 8");
  };
  constexpr const char* kQuestion =
      "Why can eight devices need longer for an epoch than four, and what keeps all of them busy?";
  return run_main(argc, argv, kQuestion, run,
                  {.num_devices = 8, .add_flags = add_flags, .hardware = Setup::Hardware::cpu});
}
