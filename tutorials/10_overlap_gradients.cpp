// 10: How does DDP hide communication behind the backward pass?
//
// In the loop of tutorial 06 all gradients are averaged after backward, while the devices wait. But
// the last layer's gradients are final long before the first layer's: their bucket can travel while
// backward still computes the others. Ddp starts each bucket's all-reduce as soon as its last
// gradient is there, so that only what travels after the end of backward costs time.
//
// You will see: the loop of 06 with Ddp in place of the lines by hand (diff 06_train_replicas.cpp
// 10_overlap_gradients.cpp); no_sync, by which several backward passes share one all-reduce; and,
// in slow motion on two GPUs of a server that is not here, a step with its buckets after backward
// and one with its buckets during backward, drawn as lanes and timed.
//
// Run:  10_overlap_gradients [--guess 1|2|3] [--bucket-mib 1] [--machine dgx-a100]
//                            [--batch 64] [--lr 0.1] [--device auto|cpu|cuda] [--fast]
//
// Expected output with --fast: tutorials/expected/10.txt

#include <lockstep.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "simulate/slow_motion/machine.h"
#include "tutorials/acted.h"
#include "tutorials/common.h"
#include "tutorials/lanes.h"
#include "tutorials/rows.h"

namespace {

using namespace lockstep;
using tutorial::ActedSteps;
using tutorial::Rows;

constexpr const char* kModel = "mlp:64-128-10";  // Linear(64, 128), ReLU, Linear(128, 10)
constexpr const char* kDeepModel = "mlp:64-1024-1024-1024-1024-1024-1024-10";

int batch_size = 64;         // --batch: rows of a step
double learning_rate = 0.1;  // --lr

double bucket_mib = 1;                     // --bucket-mib
std::string machine = tutorial::kMachine;  // --machine

// With weights that are drawn from the seed.
std::shared_ptr<nn::Module> make_model(Device device, int seed = 0) {
  const auto model = nn::make_mlp(kModel, seed);
  model->to(device);
  return model;
}

// Prints the mean loss of an epoch, and how the model does on rows that it has not seen.
void report(int epoch, double loss, nn::Module& model) {
  const data::LabelledTensors test = datasets::load_digits().test;
  fmt::print("epoch {:>2}  loss {:.4f}  test accuracy {:.1f} %\n", epoch + 1, loss,
             100 * nn::accuracy(model, test));
}

// One number of each rank becomes the sum over the ranks.
double sum_over_ranks(comm::Communicator& ranks, double value, Device device) {
  const Tensor sum = Tensor::full({1}, value, DType::float64, device);
  ranks.all_reduce(sum);
  return sum[0];
}

// A rank takes its shard of each batch.
data::BatchOptions batches_of(const comm::Communicator& ranks, Device device) {
  data::BatchOptions options{.batch = batch_size, .shuffle = true, .device = device};
  options.world_size = ranks.world_size();
  options.rank = ranks.rank();
  return options;
}

// The training loop of every rank. Returns the mean loss of each epoch.
std::vector<double> train(comm::Communicator& ranks, const std::shared_ptr<nn::Module>& model,
                          Device device, int epochs) {
  // Broadcasts the weights of rank 0; averages gradients, bucket by bucket, in backward().
  parallel::Ddp ddp(model, ranks);
  data::DataLoader loader(datasets::load_digits(0, datasets::kNumTrainDigits),
                          batches_of(ranks, device));
  optim::Sgd optimizer(model->parameters(), {.learning_rate = learning_rate, .momentum = 0.9});
  const nn::CrossEntropyLoss criterion;  // the mean over the rows of -log(the right output)
  std::vector<double> losses;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    double loss_sum = 0;
    // Forget the last gradients; forward; backward, which leaves a gradient for each weight; and
    // w -= lr * v, v a running sum of gradients (momentum).
    for (const data::Batch& batch : loader) {
      optimizer.zero_grad();
      const Variable loss = criterion(ddp(batch.x), batch.labels);
      loss.backward();
      optimizer.step();
      loss_sum += loss.item() * batch.labels.size(0);
    }
    losses.push_back(sum_over_ranks(ranks, loss_sum, device) / datasets::kNumTrainDigits);
    if (ranks.rank() == 0) report(epoch, losses.back(), *model);
  }
  return losses;
}

// Trains with one rank on each device, and returns the last rank's model. A single device is rank 0
// of 1.
std::shared_ptr<nn::Module> train_on(const std::vector<Device>& devices, int epochs) {
  std::shared_ptr<nn::Module> trained;
  tutorial::on_ranks(devices, [&](comm::Communicator& ranks, int rank, Device device) {
    const auto model = make_model(device, /*seed=*/rank);
    train(ranks, model, device, epochs);
    if (rank == ranks.world_size() - 1) trained = model;
  });
  return trained;
}

Variable mean_loss(nn::Module& model, const Rows& rows) {
  return cross_entropy(model(rows.x), rows.labels);
}

// One gradient stands for all: that of the output bias of digit 0.
double shown_gradient(const nn::Module& model) {
  return model.parameters().back().grad()[0];
}

// Gradients of two batches, one all-reduce.
void accumulate(const Rows& digits, const std::vector<Device>& devices) {
  const auto single = make_model(digits.x.device());
  mean_loss(*single, digits.part(0, 128)).backward();
  tutorial::on_ranks(devices, [&](comm::Communicator& ranks, int rank, Device device) {
    parallel::Ddp ddp(make_model(device), ranks);
    {
      const auto no_sync = ddp.no_sync();  // this gradient stays on this rank
      scale(mean_loss(ddp, digits.batch(0, 64).shard(rank, 2, device)), 0.5).backward();
    }  // the next one is added to it, then the sum is averaged
    scale(mean_loss(ddp, digits.batch(1, 64).shard(rank, 2, device)), 0.5).backward();
    if (rank != 0) return;  // only one rank prints and saves, or everything comes once per rank
    fmt::print("{} all-reduce for 2 backward passes\n", ddp.reducer().num_all_reduces());
    tutorial::check_close("the gradient against one device with all 128 rows",
                          std::abs(shown_gradient(ddp) - shown_gradient(*single)), 1e-6);
  });
}

// --- in slow motion

ActedSteps act_out(const predict::Topology& topology, parallel::Overlap overlap, int num_steps) {
  const tutorial::Training training{
      .model = kDeepModel,
      .batch = 256,
      .num_devices = 2,
      .ddp = {.bucket_mib = bucket_mib, .reducer = {.overlap = overlap}}};
  return tutorial::act_out(topology, training, num_steps);
}

// Both GPUs do the same at the same time, so one stands for both.
void print_lanes(const ActedSteps& acted, std::int64_t width_ns) {
  fmt::print("gpu 0 |{}|\n      |{}|\n", tutorial::draw_kernels(acted, 0, width_ns),
             tutorial::draw_all_reduces(acted, 0, width_ns));
}

void print_times(const char* name, const ActedSteps& acted) {
  fmt::print("{:<24} {:>8.0f} us {:>8.0f} us {:>8.0f} us {:>5.0f} %\n", name,
             1e6 * acted.step_seconds, 1e6 * acted.breakdown.overlapped_comm,
             1e6 * acted.breakdown.exposed_comm, 100 * acted.busy[0]);
}

// The bucket whose all-reduce is exposed for longest.
struct Exposed {
  int bucket = 0;
  double seconds = 0;
};

Exposed most_exposed(const ActedSteps& acted) {
  const auto seconds_inside = [](const trace::Span& a, const trace::Span& b) {
    return 1e-9 * std::max<std::int64_t>(
                      0, std::min(a.end_ns, b.end_ns) - std::max(a.begin_ns, b.begin_ns));
  };
  std::vector<trace::Span> kernels, all_reduces;
  for (const trace::Span& span : acted.recording.spans) {
    if (span.rank != 0 || seconds_inside(span, acted.step) == 0) continue;
    if (slow_motion::is_kernel(span)) kernels.push_back(span);
    if (tutorial::is_all_reduce(span)) all_reduces.push_back(span);
  }
  Exposed most;
  for (int bucket = 0; bucket < std::ssize(all_reduces); ++bucket) {
    double seconds = seconds_inside(all_reduces[bucket], all_reduces[bucket]);
    for (const trace::Span& kernel : kernels) {
      seconds -= seconds_inside(all_reduces[bucket], kernel);
    }
    if (seconds > most.seconds) most = {bucket, seconds};
  }
  return most;
}

// Draws both steps, and prints their times.
void compare(const ActedSteps& after, const ActedSteps& during) {
  const std::int64_t width_ns = std::max(tutorial::length_ns(after), tutorial::length_ns(during));
  fmt::print("f forward, b backward, u update; below: the bucket that is all-reduced, from 0\n");
  tutorial::print_axis(width_ns, /*indent=*/7);
  print_lanes(after, width_ns);
  print_lanes(during, width_ns);
  fmt::print("                                step      hidden     exposed    busy\n");
  print_times("buckets after backward", after);
  print_times("buckets during backward", during);
  fmt::print("of GPU 0; hidden: communication while a kernel runs; exposed: while none does\n");
  tutorial::check("both end with the same weights, to the bit",
                  tutorial::has_same_bits(after.weights, during.weights));
  if (bucket_mib <= 4) {  // several buckets
    tutorial::check_times("buckets during backward are faster than after it",
                          during.step_seconds < after.step_seconds);
  }
}

tutorial::Guess guess(
    "Buckets travel after backward, or during it. How much of the communication that the GPUs "
    "wait for disappears?",
    {"less than half", "more than half, but not all", "all"});

void run(const tutorial::Options& options) {
  require(batch_size % 2 == 0, ErrorCode::Usage, "--batch", "expected an even number, found {}",
          batch_size);
  const std::vector<Device> devices = options.devices(2);
  const predict::Topology topology = predict::find_topology(machine);
  const int epochs = options.fast ? 2 : 5;
  const int num_rows = datasets::kNumTrainDigits;
  const int steps = epochs * ((num_rows - 1) / batch_size + 1);
  guess.ask(options);

  tutorial::step(1, "the loop of 06, with Ddp");
  fmt::print("one device:\n");
  const auto one = train_on(options.devices(1), epochs);
  fmt::print("two devices:\n");
  const auto two = train_on(devices, epochs);
  tutorial::check_close(fmt::format("weights of 2 devices and of one after {} steps", steps),
                        tutorial::max_abs_difference(*two, *one),
                        tutorial::weight_tolerance(steps));

  tutorial::step(2, "no_sync: gradients of two batches, one all-reduce");
  accumulate(tutorial::load_digits(devices[0]), devices);

  tutorial::step(3, fmt::format("buckets of {} MiB, after backward and during it", bucket_mib));
  tutorial::say(tutorial::describe_slow_motion(topology));
  const int num_steps = options.fast ? 3 : 6;
  const ActedSteps after = act_out(topology, parallel::Overlap::after_backward, num_steps);
  const ActedSteps during = act_out(topology, parallel::Overlap::during_backward, num_steps);
  compare(after, during);
  const double left = during.breakdown.exposed_comm / after.breakdown.exposed_comm;
  guess.judge(left > 0.5    ? 1
              : left > 0.02 ? 2
                            : 3,
              fmt::format("since {:.0f} % of it is left", 100 * left));
  const Exposed most = most_exposed(during);
  tutorial::answer(
      fmt::format("Ddp sends a bucket as soon as its last gradient is there, so it travels while "
                  "backward computes the others. Of {:.0f} us of exposed communication {:.0f} are "
                  "left, {:.0f} of them bucket {}'s, which travels when backward is over. A step "
                  "is {:.2f} times as fast, with the same weights.",
                  1e6 * after.breakdown.exposed_comm, 1e6 * during.breakdown.exposed_comm,
                  1e6 * most.seconds, most.bucket, after.step_seconds / during.step_seconds),
      {{"--bucket-mib 100",
        "One bucket holds everything: one latency, but nothing is hidden. Which is faster?"},
       {"--machine k80-p2-16x",
        "Slow GPUs behind PCIe: how much of the communication is hidden?"}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  const auto add_flags = [](Flags& flags, Options&) {
    guess.add_flag(flags);
    flags.add_number("--bucket-mib", bucket_mib, 1e-6, 1000.0, "size of a bucket");
    flags.add_text("--machine", machine, "a topology, as of lockstep predict");
    flags.add_number("--batch", batch_size, 2, 1500,
                     "rows per step over both ranks, an even number");
    flags.add_number("--lr", learning_rate, 1e-4, 0.5, "learning rate");
  };
  return run_main(argc, argv, "How does DDP hide communication behind the backward pass?", run,
                  {.num_devices = 2, .add_flags = add_flags});
}
