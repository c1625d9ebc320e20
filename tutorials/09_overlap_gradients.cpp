// 09: How does DDP train one model on many ranks, and why not all-reduce gradient by gradient?
//
// You will see: gradients averaged over two ranks, whose shards need weights when they differ in
// size; no_sync; and over a link, timed, an all-reduce per parameter, buckets (bucket_cap_mb), and
// buckets while backward still runs. PyTorch's ranks are processes; here they are threads.
// Run:  09_overlap_gradients [--link 200us,300MB/s] [--device auto|cpu|cuda] [--fast]
//
// Expected output (abridged; times differ):
//   rank 0 -0.533930   rank 1 +0.062968   average -0.235481   one device -0.235481
//                  all-reduces         step   exposed comm.   overlapped
//   per parameter    26 a step     42.74 ms        21.48 ms      0.00 ms
//   overlapped        6 a step      23.37 ms         1.93 ms     10.91 ms
//   check: overlap is at least 1.3 times as fast as waiting after backward ... ok

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <optional>
#include <string>

#include "engine/autograd/ops/ops.h"
#include "engine/nn/mlp.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/ddp/ddp.h"
#include "engine/trace/span.h"
#include "tutorials/common.h"
#include "tutorials/over_link.h"
#include "tutorials/rows.h"

namespace {

using namespace lockstep;
using tutorial::Rows;

constexpr int kRanks = 2;
constexpr std::size_t kBatch = 64;
constexpr const char* kModel = "mlp:64-128-10";
constexpr const char* kDeepModel =
    "mlp:64-256-256-256-256-256-256-256-256-256-256-256-256-10:tanh";  // smooth, no kinks
constexpr int kSteps = 10;
constexpr const char* kLink = "200us,300MB/s";
std::string link_spec = kLink;  // --link

std::shared_ptr<nn::Module> make_model(const char* name, Device device, std::uint64_t seed = 0) {
  const auto model = nn::make_mlp(name, seed);
  model->to(device);
  return model;
}

Variable mean_loss(nn::Module& net, const Rows& rows) {
  return cross_entropy(net(Variable(rows.x)), rows.labels);
}

double shown_gradient(const nn::Module& model) {
  return model.parameters().back().grad().to_vector<double>()[0];  // stands for all
}

// What one device computes: the gradient of the mean over all rows.
double single_gradient(const Rows& rows) {
  const auto model = make_model(kModel, rows.x.device());
  mean_loss(*model, rows).backward();
  return shown_gradient(*model);
}

// Averaging as one writes it first: after backward, an all-reduce for every parameter.
void average_gradients(const nn::Module& model, comm::Communicator& communicator) {
  for (const Variable& parameter : model.parameters()) {
    communicator.all_reduce(parameter.grad(), {.op = comm::ReduceOp::average});
  }
}

// Two ranks, whose losses have these weights: how far is the average from one device's gradient?
double average_over_ranks(const Rows& batch, const std::vector<double>& weights,
                          const std::vector<Device>& devices) {
  const double single = single_gradient(batch);
  double average = 0, own[kRanks];
  tutorial::on_ranks(devices, [&](comm::Communicator& group, std::size_t rank, Device device) {
    const auto model = make_model(kModel, device);
    scale(mean_loss(*model, batch.shard(rank, kRanks, device)), weights[rank]).backward();
    own[rank] = shown_gradient(*model);
    average_gradients(*model, group);
    if (rank == 0) average = shown_gradient(*model);
  });
  fmt::print("  rank 0 {:+.6f}   rank 1 {:+.6f}   average {:+.6f}   one device {:+.6f}\n", own[0],
             own[1], average, single);
  return std::abs(average - single);
}

// The loop of tutorial 03, on one batch again and again; after_backward may average gradients.
void train(nn::Module& net, const Rows& rows, const std::function<void()>& after_backward) {
  optim::Sgd sgd(net.parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  for (int step = 0; step < kSteps; ++step) {
    const trace::ScopedSpan span(trace::Lane::host, trace::Category::step, "step");
    sgd.zero_grad();
    mean_loss(net, rows).backward();
    after_backward();
    sgd.step();
  }
}

// What a rank does: Ddp, or without an overlap by hand. Rank 0's model stays in trained.
void train_rank(comm::Communicator& group, std::optional<parallel::Overlap> overlap,
                const Rows& batch, std::shared_ptr<nn::Module>& trained) {
  const auto rank = static_cast<std::size_t>(group.rank());
  const Device device{DeviceType::cpu, static_cast<int>(rank)};      // where a modelled link is
  const auto model = make_model(kDeepModel, device, /*seed=*/rank);  // the ranks differ
  const Rows rows = batch.shard(rank, kRanks, device);
  if (rank == 0) trained = model;
  if (!overlap) {
    for (const Variable& p : model->parameters()) group.broadcast(p.value(), 0);
    return train(*model, rows, [&] { average_gradients(*model, group); });
  }
  parallel::DdpOptions options;
  options.reducer.bucket_byte_limits = {512 << 10};  // bucket_cap_mb=0.5; the default is 25
  options.reducer.overlap = *overlap;
  parallel::Ddp net(model, group, options);  // broadcasts rank 0's weights, too
  train(net, rows, [] {});
}

void compare_ways() {
  using enum parallel::Overlap;
  const Rows digits = tutorial::load_digits(Device{});  // the link is between ranks on the CPU
  Rows batch;
  std::array<std::shared_ptr<nn::Module>, 3> models;
  const auto way = [&](std::size_t number, std::optional<parallel::Overlap> overlap) {
    return [&, number, overlap](auto& group) { train_rank(group, overlap, batch, models[number]); };
  };
  // So many rows that backward, two thirds of a rank's computing, is a little longer than the
  // all-reduces.
  const std::clock_t start = std::clock();  // counts CPU time, so other programs do not matter
  train(*make_model(kDeepModel, Device{}), digits.part(0, 128), [] {});
  const double ratio = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC / kSteps /
                       tutorial::link_seconds(link_spec, 3.2e6, /*num_calls=*/6);
  batch = digits.part(0, 2 * static_cast<std::size_t>(std::clamp(250 / ratio, 8.0, 750.0)));
  const double least_gain = link_spec == kLink ? 1.3 : 1;
  const auto one = make_model(kDeepModel, Device{});
  train(*one, batch, [] {});
  fmt::print("{} rows a batch, {} gradients; each rank's port: {} (modelled)\n", batch.count(),
             one->parameters().size(), link_spec);
  const auto times = tutorial::time_steps(
      link_spec, kRanks, {way(0, std::nullopt), way(1, after_backward), way(2, during_backward)},
      [least_gain](const auto& t) {
        return gain(t[0], t[1]) > 1 && gain(t[1], t[2]) >= least_gain;
      });
  tutorial::print_times({"per parameter", "in buckets", "overlapped"}, times);
  double difference = 0;
  for (auto& m : models) difference = std::max(difference, tutorial::max_abs_difference(*m, *one));
  tutorial::check_close(fmt::format("weights after {} steps against one device", kSteps),
                        difference, tutorial::weight_tolerance(kSteps));
  tutorial::check_times("buckets are faster than an all-reduce per parameter",
                        gain(times[0], times[1]) > 1);
  tutorial::check_times(
      fmt::format("overlap is at least {} times as fast as waiting after backward", least_gain),
      gain(times[1], times[2]) >= least_gain);
  tutorial::answer(
      fmt::format(
          "An all-reduce per gradient pays the latency {} times; {} buckets are {:.1f} times as "
          "fast, and {:.1f} times more where they travel while backward computes: {:.1f} ms a "
          "step. The average is one device's gradient, so the ranks stay one model.",
          times[0].num_all_reduces, times[1].num_all_reduces, gain(times[0], times[1]),
          gain(times[1], times[2]), 1e3 * times[2].step.step),
      {{"--link 1ms,1GB/s", "a latency that hurts: buckets gain more"},
       {"--link 50us,1GB/s", "messages so short that waking for them costs what overlap gains"}});
}

void accumulate(const Rows& digits, const std::vector<Device>& devices) {
  const double single = single_gradient(digits.part(0, 2 * kBatch));
  tutorial::on_ranks(devices, [&](comm::Communicator& group, std::size_t rank, Device device) {
    parallel::Ddp net(make_model(kModel, device), group);
    {
      const auto no_sync = net.no_sync();  // this gradient stays on this rank
      scale(mean_loss(net, digits.batch(0, kBatch).shard(rank, kRanks, device)), 0.5).backward();
    }  // the next one is added to it, then the sum is averaged
    scale(mean_loss(net, digits.batch(1, kBatch).shard(rank, kRanks, device)), 0.5).backward();
    if (rank != 0) return;  // only one rank prints and saves, or everything comes once per rank
    fmt::print("{} all-reduce for 2 backward passes\n", net.reducer().num_all_reduces());
    tutorial::check_close("the gradient against one device with all 128 rows",
                          std::abs(shown_gradient(net) - single), 1e-6);
  });
}

void run(const tutorial::Options& options) {
  const std::vector<Device> devices = options.devices(kRanks);
  const Rows digits = tutorial::load_digits(devices[0]);
  tutorial::step(1, "2 rows on rank 0, 1 row on rank 1: the mean of their means is not the mean");
  average_over_ranks(digits.part(0, 3), {1, 1}, devices);
  fmt::print("weigh each rank's loss by its rows * 2 ranks / 3 rows, so by 4/3 and 2/3:\n");
  tutorial::check_close("average and one device",
                        average_over_ranks(digits.part(0, 3), {4.0 / 3, 2.0 / 3}, devices), 1e-6);
  tutorial::step(2, "no_sync: gradients of two batches, one all-reduce");
  accumulate(digits, devices);
  tutorial::step(3, "three ways to average over a link, the same weights");
  compare_ways();
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  const auto add_flags = [](Flags& flags, Options&) {
    flags.add_text("--link", link_spec, "LATENCY,BANDWIDTH of each rank's port");
  };
  constexpr const char* kQuestion =
      "How does DDP train one model on many ranks, and why not all-reduce gradient by gradient?";
  return run_main(argc, argv, kQuestion, run, {kRanks, add_flags});
}
