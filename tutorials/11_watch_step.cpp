// 11: What do eight devices do during one step of DDP, and what does overlap gain?
//
// A step of eight GPUs takes a quarter of a thousandth of a second: too short to be watched. In
// slow motion it can be: eight devices of the CPU take the places of the eight GPUs of a DGX A100,
// each of which reaches every other by NVLink through NVSwitch. It is the machine of all slow
// motion in the course. The devices compute and send for real, but wait after each kernel and each
// message until an A100 would be done, times a factor.
//
// You will see: two lanes for each device, kernels and all-reduces, drawn as rows of characters
// over a time axis: first with all buckets all-reduced after backward, then with each on its way as
// soon as it is full, while backward still computes (tutorial 10). All three trainings end with the
// same weights: these two and one that is not slowed down. `lockstep train --act-as dgx-a100
// --parallel ddp --devices 8 --trace FILE` records such lanes for ui.perfetto.dev.
//
// Run:  11_watch_step [--machine dgx-a100] [--model mlp:64-384-384-384-384-384-384-384-10]
//                     [--batch 512] [--bucket-kib 512] [--fast]
//
// Expected output with --fast: tutorials/expected/11.txt

#include <algorithm>
#include <string>

#include "simulate/predict/step.h"
#include "tutorials/acted.h"
#include "tutorials/common.h"
#include "tutorials/lanes.h"

namespace {

using namespace lockstep;
using parallel::Overlap;
using tutorial::ActedSteps;
using tutorial::Training;

constexpr int kDevices = 8;
constexpr const char* kModel = "mlp:64-384-384-384-384-384-384-384-10";
constexpr int kBatch = 512;
constexpr int kBucketKib = 512;
constexpr double kLeastGain = 1.1;  // with the default flags

std::string machine = tutorial::kMachine;  // --machine
std::string model = kModel;                // --model
int batch = kBatch;                        // --batch
int bucket_kib = kBucketKib;               // --bucket-kib

Training steps_of(Overlap overlap) {
  return {.model = model,
          .batch = batch,
          .num_devices = kDevices,
          .ddp = {.bucket_mib = bucket_kib / 1024.0, .reducer = {.overlap = overlap}}};
}

// Two devices with two rows each: kernels, and below them the all-reduces, numbered. The others do
// the same at the same time.
void print_picture(const ActedSteps& acted, std::int64_t width_ns) {
  tutorial::print_axis(width_ns, /*indent=*/7);
  for (const int device : {0, kDevices - 1}) {
    fmt::print("gpu {} |{}|\n      |{}|\n", device, tutorial::draw_kernels(acted, device, width_ns),
               tutorial::draw_all_reduces(acted, device, width_ns));
  }
  const auto [least, most] = std::ranges::minmax(acted.busy);
  fmt::print("gpu 1 to {} do the same: all {} are busy {:.0f} to {:.0f} % of the step\n",
             kDevices - 2, kDevices, 100 * least, 100 * most);
}

void print_times(const char* name, const ActedSteps& acted) {
  fmt::print("{:<16} {:>8.0f} us {:>5.0f} % {:>8.0f} us {:>8.0f} us {:>12}\n", name,
             1e6 * acted.step_seconds, 100 * acted.busy[0], 1e6 * acted.breakdown.overlapped_comm,
             1e6 * acted.breakdown.exposed_comm, fmt::format("1 : {:.0f}", acted.factor));
}

void run(const tutorial::Options& options) {
  const predict::Topology topology = predict::find_topology(machine);
  const int num_steps = options.fast ? 3 : 6;
  fmt::print("{}, {} rows a step\n", model, batch);
  tutorial::say(tutorial::describe_slow_motion(topology));
  tutorial::step(1, "without overlap: all buckets after backward");
  const ActedSteps after =
      tutorial::act_out(topology, steps_of(Overlap::after_backward), num_steps);
  const std::int64_t after_ns = tutorial::length_ns(after);
  fmt::print("f forward, b backward, u update; below: the bucket that is all-reduced, from 0\n");
  print_picture(after, after_ns);

  tutorial::step(2, "with overlap: each bucket is sent when it is full, during backward");
  const ActedSteps during =
      tutorial::act_out(topology, steps_of(Overlap::during_backward), num_steps);
  print_picture(during, std::max(after_ns, tutorial::length_ns(during)));

  tutorial::step(3, "compare them");
  fmt::print("all-reduces             step    busy      hidden     exposed  slowed down\n");
  print_times("after backward", after);
  print_times("during backward", during);
  tutorial::say(fmt::format(
      "of GPU 0; hidden: communication while a kernel runs; exposed: while none does.\n"
      "Communication uses the GPU, too: a kernel beside it runs at {:.0f} % of its speed, so the "
      "step gains less than what is hidden.",
      100 * predict::kOverlapInterference.compute));
  const bool is_default = machine == tutorial::kMachine && model == kModel && batch == kBatch &&
                          bucket_kib == kBucketKib;
  const double gain = after.step_seconds / during.step_seconds;
  if (is_default) {
    tutorial::check_times(fmt::format("overlap is at least {} times as fast", kLeastGain),
                          gain >= kLeastGain);
  }
  const Training plain = steps_of(Overlap::during_backward);
  const std::vector<Tensor> weights = tutorial::train(plain, tutorial::make_rows(plain), num_steps);
  tutorial::check("both end with the weights of a normal run, to the bit",
                  tutorial::has_same_bits(after.weights, weights) &&
                      tutorial::has_same_bits(during.weights, weights));
  tutorial::answer(
      fmt::format(
          "They compute, and all-reduce their gradients. Without overlap {:.0f} of {:.0f} us of "
          "GPU 0's step are exposed communication, with it {:.0f} of {:.0f} us: {:.2f}x as fast, "
          "with the same weights.",
          1e6 * after.breakdown.exposed_comm, 1e6 * after.step_seconds,
          1e6 * during.breakdown.exposed_comm, 1e6 * during.step_seconds, gain),
      {{"--bucket-kib 2048", "larger buckets: fewer messages, but the last one starts later"},
       {"--machine k80-p2-16x",
        "slow links: more to hide than there is backward to hide it behind"}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  const auto add_flags = [](Flags& flags, Options&) {
    flags.add_text("--machine", machine, "a topology of eight devices or more");
    flags.add_text("--model", model, "what is trained");
    flags.add_number("--batch", batch, 8, 65536, "rows of a step, a multiple of 8");
    flags.add_number("--bucket-kib", bucket_kib, 1, 1 << 20, "size of a bucket with overlap");
  };
  constexpr const char* kQuestion =
      "What do eight devices do during one step of DDP, and what does overlap gain?";
  return run_main(
      argc, argv, kQuestion, run,
      {.num_devices = kDevices, .add_flags = add_flags, .hardware = Setup::Hardware::cpu});
}
