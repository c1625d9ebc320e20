// 17: Why can eight devices need longer for an epoch than four, and what keeps all of them busy?
//
// You will see: a server of eight TITAN X on two PCIe roots, which is not here; what DataParallel
// makes of it on one device, two, four and eight, predicted; the same acted out in slow motion by
// devices of the CPU, on four and on eight (`lockstep train --act-as`); and what removes it,
// predicted for all, acted out for one. All figures of the machine stand in its topology file, all
// others in simulate/predict; none is made for this net. Who reports such a server seldom says
// which TITAN X it has: here it is the Pascal one.
//
// Run:  17_feed_devices [--machine titanx-pascal-dual-root-8] [--batch 32768] [--fast]
//
// Expected output (abridged):
//   devices    kernels     copies  gradients       step      epoch    busy
//         1  1468.3 us     0.0 us     0.0 us  1478.3 us   47.3 ms    99 %
//         4   605.2 us    95.4 us   428.7 us  1150.2 us   36.8 ms    53 %
//         8   461.3 us   178.8 us   544.6 us  1206.1 us   38.6 ms    38 %
//   check: eight devices are busy 35 to 55 % of the time, and slower than four ... ok
//   check: acted out, eight devices are busy 35 to 55 % of the time, and slower than four ... ok
//   check: acted out, every step is within 10 % of the prediction ... ok
//   DDP, buckets beside backward          32768    603.0 us    19.3 ms    88 %
//   check: DDP on eight devices is at least 1.3 times as fast as DataParallel on four ... ok

#include <cmath>
#include <string>

#include "engine/nn/mlp.h"
#include "tutorials/acted.h"
#include "tutorials/common.h"

namespace {

using namespace lockstep;
using predict::PredictedStep;
using tutorial::ActedSteps;
using tutorial::Training;

constexpr const char* kMachine = "titanx-pascal-dual-root-8";
constexpr std::size_t kBatch = 32768;
constexpr std::size_t kEpochRows = std::size_t{1} << 20;
constexpr std::size_t kBucketBytes = std::size_t{64} << 10;
constexpr std::size_t kOneBucket = std::size_t{1} << 30;
constexpr double kTolerance = 0.1;
constexpr double kLeastBusy = 0.35, kMostBusy = 0.55;  // of eight devices under DataParallel
constexpr double kLeastGain = 1.3;                     // of DDP on eight over DataParallel on four

std::string machine = kMachine;  // --machine
std::size_t batch = kBatch;      // --batch

bool is_default() {
  return machine == kMachine && batch == kBatch;
}

// Deep and narrow: many small kernels, little data, so that it can be acted out in seconds.
std::string model_name() {
  constexpr std::size_t kHiddenLayers = 20;
  std::string name = "mlp:4";
  for (std::size_t i = 0; i < kHiddenLayers; ++i) name += "-48";
  return name + "-2";
}

Training data_parallel(std::size_t num_devices, std::size_t rows) {
  return {model_name(), rows, num_devices, predict::Strategy::data_parallel};
}

Training ddp(std::size_t num_devices, std::size_t rows, std::size_t bucket_bytes) {
  Training training{model_name(), rows, num_devices};
  training.reducer.bucket_byte_limits = {bucket_bytes};
  return training;
}

double epoch_ms(double step_seconds, std::size_t rows) {
  return 1e3 * step_seconds * static_cast<double>(kEpochRows) / static_cast<double>(rows);
}

// Steps of DataParallel.
struct FourAndEight {
  double four_seconds = 0;
  double eight_seconds = 0;
  double eight_busy = 0;
};

// What this tutorial is about.
bool is_starved(const FourAndEight& steps) {
  return steps.eight_busy >= kLeastBusy && steps.eight_busy <= kMostBusy &&
         steps.eight_seconds > steps.four_seconds;
}

FourAndEight predict_data_parallel(const predict::Topology& topology) {
  FourAndEight result;
  fmt::print("devices    kernels     copies  gradients       step      epoch    busy\n");
  for (const std::size_t num_devices : {1, 2, 4, 8}) {
    const PredictedStep step =
        tutorial::predict_training(topology, data_parallel(num_devices, batch));
    const trace::StepBreakdown& parts = step.breakdown;
    fmt::print("{:>7} {:>7.1f} us {:>7.1f} us {:>7.1f} us {:>7.1f} us {:>6.1f} ms {:>5.0f} %\n",
               num_devices, 1e6 * (parts.forward + parts.backward + parts.optimizer),
               1e6 * parts.copy, 1e6 * parts.exposed_comm, 1e6 * step.step_seconds,
               epoch_ms(step.step_seconds, batch), 100 * step.busy_fraction);
    if (num_devices == 4) result.four_seconds = step.step_seconds;
    if (num_devices == 8) {
      result.eight_seconds = step.step_seconds;
      result.eight_busy = step.busy_fraction;
    }
  }
  fmt::print("copies: rows and weights from device 0; gradients: back to it, and summed there\n");
  return result;
}

// Acts a training out, prints its line beside the prediction, and keeps the largest error.
ActedSteps act_out(const predict::Topology& topology, const char* name, const Training& training,
                   std::size_t num_steps, double& largest_error) {
  const PredictedStep predicted = tutorial::predict_training(topology, training);
  ActedSteps acted = tutorial::act_out(topology, training, num_steps);
  fmt::print("{:<16} {:>3} {:>8.1f} us {:>4.0f} % {:>8.1f} us {:>4.0f} % {:>6.1f} ms {:>12}\n",
             name, training.num_devices, 1e6 * predicted.step_seconds,
             100 * predicted.busy_fraction, 1e6 * acted.step_seconds, 100 * acted.busy_fraction,
             epoch_ms(acted.step_seconds, training.batch), fmt::format("1 : {:.0f}", acted.factor));
  largest_error =
      std::max(largest_error, std::abs(acted.step_seconds / predicted.step_seconds - 1));
  return acted;
}

constexpr const char* kActedHead =
    "              devices     predicted          acted out     epoch  slowed down\n";

// The ways out, for eight devices.
void predict_remedies(const predict::Topology& topology) {
  struct Remedy {
    const char* name;
    Training training;
  };
  const Remedy remedies[] = {
      {"DataParallel", data_parallel(8, batch)},
      {"DataParallel, four times the rows", data_parallel(8, 4 * batch)},
      {"DDP, one bucket", ddp(8, batch, kOneBucket)},
      {"DDP, buckets beside backward", ddp(8, batch, kBucketBytes)},
      {"the same, four times the rows", ddp(8, 4 * batch, kBucketBytes)},
  };
  fmt::print("predicted, eight devices               rows        step      epoch    busy\n");
  for (const auto& [name, training] : remedies) {
    const PredictedStep step = tutorial::predict_training(topology, training);
    fmt::print("{:<34} {:>8} {:>8.1f} us {:>7.1f} ms {:>5.0f} %\n", name, training.batch,
               1e6 * step.step_seconds, epoch_ms(step.step_seconds, training.batch),
               100 * step.busy_fraction);
  }
}

void run(const tutorial::Options& options) {
  const predict::Topology topology = predict::find_topology(machine);
  const std::size_t num_steps = options.fast ? 2 : 6;
  fmt::print("{}: {} x {}, {} rows a step, {} rows an epoch\n{}, {} parameters\n", machine,
             topology.gpus.size(), topology.device.name, batch, kEpochRows, model_name(),
             nn::make_mlp(model_name(), 0)->num_parameters());
  if (machine == kMachine) {
    fmt::print("(reports seldom say which TITAN X such a server has: Pascal is assumed)\n");
  }
  tutorial::step(1, "DataParallel, predicted");
  const FourAndEight predicted = predict_data_parallel(topology);
  const std::string claim = "eight devices are busy 35 to 55 % of the time, and slower than four";
  if (is_default()) tutorial::check(claim, is_starved(predicted));

  tutorial::step(2, "DataParallel, acted out");
  double largest_error = 0;
  fmt::print("{}", kActedHead);
  const ActedSteps four =
      act_out(topology, "DataParallel", data_parallel(4, batch), num_steps, largest_error);
  const ActedSteps eight =
      act_out(topology, "DataParallel", data_parallel(8, batch), num_steps, largest_error);
  const FourAndEight acted{four.step_seconds, eight.step_seconds, eight.busy_fraction};
  if (is_default()) tutorial::check_times("acted out, " + claim, is_starved(acted));

  tutorial::step(3, "what removes it");
  predict_remedies(topology);
  fmt::print("{}", kActedHead);
  const ActedSteps remedy =
      act_out(topology, "DDP with buckets", ddp(8, batch, kBucketBytes), num_steps, largest_error);
  if (is_default()) {
    tutorial::check_times("acted out, every step is within 10 % of the prediction",
                          largest_error <= kTolerance);
    tutorial::check_times(
        fmt::format("DDP on eight devices is at least {} times as fast as DataParallel on four",
                    kLeastGain),
        acted.four_seconds >= kLeastGain * remedy.step_seconds);
  }
  tutorial::answer(
      fmt::format("Device 0 feeds the others by one link: more devices, more to send, less to "
                  "compute. An epoch took {:.1f} ms on four, {:.1f} on eight, busy {:.0f} %. DDP, "
                  "where all send at once, beside backward: {:.1f} ms, busy {:.0f} %.",
                  epoch_ms(acted.four_seconds, batch), epoch_ms(acted.eight_seconds, batch),
                  100 * acted.eight_busy, epoch_ms(remedy.step_seconds, batch),
                  100 * remedy.busy_fraction),
      {{"--machine titanx-maxwell-dual-root-8",
        "the older TITAN X, with less to feed: is it busier?"},
       {"--batch 8192", "so little to compute that one device would be the fastest"}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  const auto add_flags = [](Flags& flags, Options&) {
    flags.add_text("--machine", machine, "a topology of eight devices or more in one host");
    flags.add_number("--batch", batch, 8, 1 << 17, "rows of a step, a multiple of 8");
  };
  constexpr const char* kQuestion =
      "Why can eight devices need longer for an epoch than four, and what keeps all of them busy?";
  return run_main(argc, argv, kQuestion, run,
                  {.num_devices = 8, .add_flags = add_flags, .hardware = Setup::Hardware::cpu});
}
