// 09: Why does DDP average gradients in buckets, and not each by itself?
//
// An all-reduce has a price that does not depend on its size: each of its messages needs some
// microseconds before the first byte arrives. A model with 26 gradients that sends each by itself
// pays that price 26 times in every step. DDP puts gradients that are ready one after the other
// into a bucket, and sends the bucket as one message: it pays once per bucket.
//
// You will see: which gradient is in which bucket, and when each bucket is ready; what the average
// is worth if the ranks have unequally many rows; and, in slow motion on two GPUs of a server that
// is not here, steps with one all-reduce per gradient and steps with buckets (PyTorch's
// bucket_cap_mb), which end with the same weights. PyTorch's ranks are processes; here they are
// threads.
//
// Run:  09_fill_buckets [--guess 1|2|3] [--bucket-mib 0.5] [--machine dgx-a100]
//                       [--device auto|cpu|cuda] [--fast]
//
// Expected output with --fast: tutorials/expected/09.txt

#include <lockstep.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tutorials/acted.h"
#include "tutorials/common.h"
#include "tutorials/rows.h"

namespace {

using namespace lockstep;
using tutorial::Rows;

constexpr const char* kModel = "mlp:64-128-10";  // for the unequal shards
constexpr const char* kDeepModel = "mlp:64-256-256-256-256-256-256-256-256-256-256-256-256-10";
constexpr double kOneEach = 1e-6;  // MiB: a bucket so small that one gradient fills it

double bucket_mib = 0.5;                   // --bucket-mib
std::string machine = tutorial::kMachine;  // --machine

Variable mean_loss(nn::Module& model, const Rows& rows) {
  return cross_entropy(model(rows.x), rows.labels);
}

// --- which gradient is in which bucket

// When the last gradient of each parameter was there, in ms since backward began; keyed by
// parameter.
using ReadyTimes = std::map<const void*, double>;

// Three backward passes of this rank; the times are the last one's.
ReadyTimes time_backward(parallel::Ddp& ddp, const Rows& rows) {
  using Clock = std::chrono::steady_clock;
  ReadyTimes ready_ms;
  Clock::time_point start;
  for (Variable parameter : ddp.parameters()) {
    parameter.on_grad_ready([&](const Variable& leaf) {
      ready_ms[leaf.identity()] =
          std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    });
  }
  for (int step = 0; step < 3; ++step) {  // the first ones take memory
    ddp.zero_grad();
    const Variable loss = mean_loss(ddp, rows);
    start = Clock::now();
    loss.backward();
  }
  return ready_ms;
}

// Prints the buckets in the order in which they leave. Returns how many there are.
int show_buckets(const std::vector<Device>& devices) {
  int num_buckets = 0;
  tutorial::on_ranks(devices, [&](comm::Communicator& ranks, int rank, Device device) {
    const auto model = nn::make_mlp(kDeepModel, /*seed=*/0, DType::float32, device);
    parallel::Ddp ddp(model, ranks, {.bucket_mib = bucket_mib});
    ReadyTimes ready_ms = time_backward(ddp, tutorial::load_digits(device).part(0, 128));
    if (rank != 0) return;
    const std::vector<nn::NamedParameter> parameters = model->named_parameters();
    const plan::BucketPlan& plan = ddp.reducer().bucket_plan();
    num_buckets = static_cast<int>(plan.buckets.size());
    for (int b = 0; b < num_buckets; ++b) {
      std::vector<std::string> names;
      double ready = 0;
      for (const std::size_t i : plan.buckets[b].parameters()) {
        names.push_back(parameters[i].first);
        ready = std::max(ready, ready_ms[parameters[i].second.identity()]);
      }
      tutorial::say(fmt::format("bucket {}: {}: {} KiB, ready {:.2f} ms into backward", b,
                                fmt::join(names, ", "), plan.buckets[b].num_bytes() / 1024, ready),
                    10);
    }
  });
  return num_buckets;
}

// --- unequal shards

// One gradient stands for all: that of the output bias of digit 0.
double shown_gradient(const nn::Module& model) {
  return model.parameters().back().grad()[0];
}

// Averages the gradients of two ranks whose losses have these weights. Returns how far the average
// is from one device's gradient of the mean over all rows.
double average_weighted(const Rows& batch, const std::vector<double>& weights,
                        const std::vector<Device>& devices) {
  const auto make_model = [](Device device) {
    return nn::make_mlp(kModel, /*seed=*/0, DType::float32, device);
  };
  const auto single = make_model(batch.x.device());
  mean_loss(*single, batch).backward();
  std::vector<double> own(2);
  double average = 0;
  tutorial::on_ranks(devices, [&](comm::Communicator& ranks, int rank, Device device) {
    const Rows shard = batch.shard(rank, 2, device);
    const auto alone = make_model(device);  // without Ddp: the gradient of this rank's rows
    scale(mean_loss(*alone, shard), weights[rank]).backward();
    own[rank] = shown_gradient(*alone);
    parallel::Ddp ddp(make_model(device), ranks);
    scale(mean_loss(ddp, shard), weights[rank]).backward();
    if (rank == 0) average = shown_gradient(ddp);
  });
  fmt::print("  rank 0 {:+.6f}   rank 1 {:+.6f}   average {:+.6f}\n", own[0], own[1], average);
  fmt::print("  {:>49} {:+.6f}\n", "one device", shown_gradient(*single));
  return std::abs(average - shown_gradient(*single));
}

// --- in slow motion

// Seconds of a step with buckets of this size, all of them sent after backward.
tutorial::ActedSteps act_out(const predict::Topology& topology, double mib, int num_steps) {
  const tutorial::Training training{
      .model = kDeepModel,
      .batch = 2048,
      .num_devices = 2,
      .ddp = {.bucket_mib = mib, .reducer = {.overlap = parallel::Overlap::after_backward}}};
  return tutorial::act_out(topology, training, num_steps);
}

void print_times(const char* name, int num_all_reduces, const tutorial::ActedSteps& acted) {
  fmt::print("{:<22} {:>11} {:>9.0f} us {:>10.0f} us {:>6.0f} %\n", name, num_all_reduces,
             1e6 * acted.step_seconds, 1e6 * acted.breakdown.exposed_comm, 100 * acted.busy[0]);
}

tutorial::Guess guess(
    "A model has 26 gradients, all of them sent after backward. How much faster is a step if they "
    "travel in buckets instead of one by one?",
    {"less than 1.1 times as fast", "1.1 to 1.5 times", "more than 1.5 times"});

void run(const tutorial::Options& options) {
  const std::vector<Device> devices = options.devices(2);
  const predict::Topology topology = predict::find_topology(machine);
  guess.ask(options);

  tutorial::step(
      1, fmt::format("buckets of {} MiB: the last layer's gradients are ready first", bucket_mib));
  const int num_buckets = show_buckets(devices);

  const Rows digits = tutorial::load_digits(devices[0]);
  tutorial::step(2, "2 rows and 1 row: the mean of their means is not the mean");
  average_weighted(digits.part(0, 3), {1, 1}, devices);
  fmt::print("weigh each rank's loss by its rows * 2 ranks / 3 rows, so by 4/3 and 2/3:\n");
  tutorial::check_close("average and one device",
                        average_weighted(digits.part(0, 3), {4.0 / 3, 2.0 / 3}, devices), 1e-6);

  tutorial::step(3, "bucket by bucket against gradient by gradient, on two GPUs");
  tutorial::say(tutorial::describe_slow_motion(topology));
  const int num_steps = options.fast ? 3 : 6;
  const tutorial::ActedSteps each = act_out(topology, kOneEach, num_steps);
  const tutorial::ActedSteps buckets = act_out(topology, bucket_mib, num_steps);
  fmt::print("after backward         all-reduces         step       exposed     busy\n");
  print_times("gradient by gradient", 26, each);
  print_times("bucket by bucket", num_buckets, buckets);
  fmt::print("of GPU 0; exposed: communication while no kernel runs, so that it waits\n");
  const double gain = each.step_seconds / buckets.step_seconds;
  tutorial::check_close("weights after these steps",
                        tutorial::max_abs_difference(each.weights, buckets.weights),
                        tutorial::weight_tolerance(num_steps));
  tutorial::check_times("buckets are faster than an all-reduce per gradient", gain > 1);
  guess.judge(gain < 1.1    ? 1
              : gain <= 1.5 ? 2
                            : 3,
              fmt::format("since it is {:.2f} times as fast", gain));
  tutorial::answer(
      fmt::format(
          "An all-reduce has a latency, whatever its size. Gradient by gradient a step pays "
          "it 26 times, with {} bucket{} {}: {:.0f} us of exposed communication become "
          "{:.0f}, and the step is {:.2f} times as fast, with the same weights.",
          num_buckets, num_buckets == 1 ? "" : "s",
          num_buckets == 1 ? "once" : fmt::format("{} times", num_buckets),
          1e6 * each.breakdown.exposed_comm, 1e6 * buckets.breakdown.exposed_comm, gain),
      {{"--bucket-mib 25",
        "One bucket, one latency: still faster? PyTorch has 1 MiB first, then 25."},
       {"--machine k80-p2-16x", "Slow GPUs compute so long that it matters less."}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  const auto add_flags = [](Flags& flags, Options&) {
    guess.add_flag(flags);
    flags.add_number("--bucket-mib", bucket_mib, 1e-6, 1000.0, "size of a bucket");
    flags.add_text("--machine", machine, "a topology, as of lockstep predict");
  };
  return run_main(argc, argv, "Why does DDP average gradients in buckets, and not each by itself?",
                  run, {.num_devices = 2, .add_flags = add_flags});
}
