// 10: How does DDP train one model on many ranks, and why not all-reduce gradient by gradient?
//
// You will see: which gradient is in which bucket, and when each bucket is ready; the loop of
// tutorial 06 with Ddp in place of the lines by hand (diff 06_train_replicas.cpp
// 10_overlap_gradients.cpp); shards of different sizes; no_sync; and, in slow motion on two GPUs of
// a server that is not here, an all-reduce per parameter, buckets (PyTorch's bucket_cap_mb), and
// buckets while backward still runs. PyTorch's ranks are processes; here they are threads.
//
// Run:  10_overlap_gradients [--guess 1|2|3] [--bucket-mib 0.5] [--machine dgx1-v100]
//                            [--batch 64] [--lr 0.1] [--device auto|cpu|cuda] [--fast]
//
// Expected output with --fast: tutorials/expected/10.txt

#include <lockstep.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <string>

#include "tutorials/acted.h"
#include "tutorials/common.h"
#include "tutorials/rows.h"

namespace {

using namespace lockstep;
using tutorial::Rows;

constexpr const char* kModel = "mlp:64-128-10";  // Linear(64, 128), ReLU, Linear(128, 10)
constexpr const char* kDeepModel = "mlp:64-256-256-256-256-256-256-256-256-256-256-256-256-10";
constexpr const char* kMachine = "dgx1-v100";

int batch_size = 64;         // --batch: rows of a step
double learning_rate = 0.1;  // --lr

double bucket_mib = 0.5;         // --bucket-mib
std::string machine = kMachine;  // --machine

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

// Prints which gradients share a bucket, in the order in which the buckets leave, and when in a
// backward pass of rank 0 the last gradient of each was there.
void show_buckets(const std::vector<Device>& devices) {
  using Clock = std::chrono::steady_clock;
  tutorial::on_ranks(devices, [&](comm::Communicator& ranks, int rank, Device device) {
    const auto model = nn::make_mlp(kDeepModel, /*seed=*/0);
    model->to(device);
    parallel::Ddp ddp(model, ranks, {.bucket_mib = bucket_mib});
    const std::vector<nn::NamedParameter> parameters = model->named_parameters();
    std::map<const void*, double> ready_ms;  // keyed by gradient; since backward began
    Clock::time_point start;
    for (auto [name, parameter] : parameters) {
      parameter.on_grad_ready([&](const Variable& leaf) {
        ready_ms[leaf.identity()] =
            std::chrono::duration<double, std::milli>(Clock::now() - start).count();
      });
    }
    const Rows rows = tutorial::load_digits(device).part(0, 128);
    for (int step = 0; step < 3; ++step) {  // the first ones take memory
      model->zero_grad();
      const Variable loss = mean_loss(ddp, rows);
      start = Clock::now();
      loss.backward();
    }
    if (rank != 0) return;
    const plan::BucketPlan& plan = ddp.reducer().bucket_plan();
    for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
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
}

// One gradient stands for all: that of the output bias of digit 0.
double shown_gradient(const nn::Module& model) {
  return model.parameters().back().grad()[0];
}

// One device's gradient of the mean over all rows.
double single_gradient(const Rows& rows) {
  const auto model = make_model(rows.x.device());
  mean_loss(*model, rows).backward();
  return shown_gradient(*model);
}

// Averages the gradients of two ranks whose losses have these weights. Returns how far the average
// is from one device's gradient.
double average_weighted(const Rows& batch, const std::vector<double>& weights,
                        const std::vector<Device>& devices) {
  const double single = single_gradient(batch);
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
  fmt::print("  rank 0 {:+.6f}   rank 1 {:+.6f}   average {:+.6f}   one device {:+.6f}\n", own[0],
             own[1], average, single);
  return std::abs(average - single);
}

// Gradients of two batches, one all-reduce.
void accumulate(const Rows& digits, const std::vector<Device>& devices) {
  const double single = single_gradient(digits.part(0, 128));
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
                          std::abs(shown_gradient(ddp) - single), 1e-6);
  });
}

// A way to average gradients, for the comparison.
struct Way {
  const char* name;
  double mib;  // size of a bucket
  parallel::Overlap overlap;

  tutorial::Training training() const {
    return {.model = kDeepModel,
            .batch = 2048,
            .num_devices = 2,
            .ddp = {.bucket_mib = mib, .reducer = {.overlap = overlap}}};
  }
};

std::vector<Way> make_ways() {
  using enum parallel::Overlap;
  return {{"per parameter, after backward", 1e-6, after_backward},
          {"buckets, after backward", bucket_mib, after_backward},
          {"buckets, during backward", bucket_mib, during_backward}};
}

// Acts the three ways out, and returns the seconds of a step of each.
std::vector<double> compare_ways(const predict::Topology& topology, int num_steps) {
  fmt::print("                                      step      hidden     exposed    busy\n");
  std::vector<double> seconds;
  for (const Way& way : make_ways()) {
    const tutorial::ActedSteps acted = tutorial::act_out(topology, way.training(), num_steps);
    fmt::print("{:<30} {:>8.0f} us {:>8.0f} us {:>8.0f} us {:>5.0f} %\n", way.name,
               1e6 * acted.step_seconds, 1e6 * acted.breakdown.overlapped_comm,
               1e6 * acted.breakdown.exposed_comm, 100 * acted.busy_fraction);
    seconds.push_back(acted.step_seconds);
  }
  fmt::print("hidden: communication while the GPUs compute; exposed: the rest of it\n");
  tutorial::check_times("buckets are faster than an all-reduce per parameter",
                        seconds[1] < seconds[0]);
  if (bucket_mib <= 0.5) {  // several buckets
    tutorial::check_times("buckets during backward are faster than after it",
                          seconds[2] < seconds[1]);
  }
  return seconds;
}

tutorial::Guess guess(
    "A model has 26 gradients. How much faster is a step if they travel in buckets while backward "
    "runs, instead of one by one after it?",
    {"less than 1.1 times as fast", "1.1 to 1.5 times", "more than 1.5 times"});

void run(const tutorial::Options& options) {
  require(batch_size % 2 == 0, ErrorCode::Usage, "--batch", "expected an even number, found {}",
          batch_size);
  const std::vector<Device> devices = options.devices(2);
  const predict::Topology topology = predict::find_topology(machine);
  const int epochs = options.fast ? 2 : 5;
  const int num_rows = datasets::kNumTrainDigits;
  const int steps = epochs * ((num_rows - 1) / batch_size + 1);
  guess.ask(options);

  tutorial::step(
      1, fmt::format("buckets of {} MiB: the last layer's gradients are ready first", bucket_mib));
  show_buckets(devices);

  tutorial::step(2, "the loop of 06, with Ddp");
  fmt::print("one device:\n");
  const auto one = train_on(options.devices(1), epochs);
  fmt::print("two devices:\n");
  const auto two = train_on(devices, epochs);
  tutorial::check_close(fmt::format("weights of 2 devices and of one after {} steps", steps),
                        tutorial::max_abs_difference(*two, *one),
                        tutorial::weight_tolerance(steps));

  const Rows digits = tutorial::load_digits(devices[0]);
  tutorial::step(3, "2 rows and 1 row: the mean of their means is not the mean");
  average_weighted(digits.part(0, 3), {1, 1}, devices);
  fmt::print("weigh each rank's loss by its rows * 2 ranks / 3 rows, so by 4/3 and 2/3:\n");
  tutorial::check_close("average and one device",
                        average_weighted(digits.part(0, 3), {4.0 / 3, 2.0 / 3}, devices), 1e-6);

  tutorial::step(4, "no_sync: gradients of two batches, one all-reduce");
  accumulate(digits, devices);

  tutorial::step(5, fmt::format("in slow motion on two {}", topology.device.name));
  const std::vector<double> seconds = compare_ways(topology, options.fast ? 3 : 6);
  const double gain = seconds[0] / seconds[2];
  guess.judge(gain < 1.1    ? 1
              : gain <= 1.5 ? 2
                            : 3,
              fmt::format("since it is {:.2f} times as fast", gain));
  tutorial::answer(
      fmt::format("Ddp averages gradients in buckets while backward runs. One all-reduce per "
                  "gradient pays the latency 26 times: {:.2f} ms a step. Buckets take {:.2f} ms, "
                  "and during backward {:.2f} ms: {:.2f} times as fast, with the same weights.",
                  1e3 * seconds[0], 1e3 * seconds[1], 1e3 * seconds[2], gain),
      {{"--bucket-mib 25",
        "One bucket holds everything, so nothing can overlap. PyTorch has 1 MiB first, then 25."},
       {"--machine k80-p2-16x", "Slow GPUs compute so long that it hardly matters."}});
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
  constexpr const char* kQuestion =
      "How does DDP train one model on many ranks, and why not all-reduce gradient by gradient?";
  return run_main(argc, argv, kQuestion, run, {.num_devices = 2, .add_flags = add_flags});
}
