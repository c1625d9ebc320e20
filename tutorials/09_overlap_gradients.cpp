// 09: How does DistributedDataParallel (DDP) train one model on many ranks?
//
// You will see: gradients averaged over two ranks; why shards of different size need weights; three
// ways to average, timed: an all-reduce per parameter, in buckets (bucket_cap_mb), in buckets while
// backward still runs; and no_sync. PyTorch starts one process per GPU (torchrun,
// init_process_group). Here ranks are threads of one process that make the same calls.
//
// Run:  09_overlap_gradients [--device auto|cpu|cuda] [--fast]
//
// Expected output (abridged; times differ):
//   rank 0 -0.533930   rank 1 +0.062968   average -0.235481   one device -0.235481
//                    all-reduces       step   exposed comm.  overlapped
//   per parameter     12 a step     3.03 ms         0.44 ms     0.00 ms
//   in buckets         5 a step     3.03 ms         0.39 ms     0.00 ms
//   overlapped         5 a step     3.01 ms         0.01 ms     0.32 ms

#include <cmath>
#include <optional>
#include <string>

#include "engine/autograd/ops/ops.h"
#include "engine/nn/mlp.h"
#include "engine/optim/sgd.h"
#include "engine/parallel/ddp/ddp.h"
#include "engine/runtime/device_span.h"
#include "engine/trace/breakdown.h"
#include "engine/trace/counters.h"
#include "engine/trace/recorder.h"
#include "tutorials/common.h"
#include "tutorials/rows.h"

namespace {

using namespace lockstep;
using tutorial::Rows;

constexpr int kRanks = 2;
constexpr std::size_t kBatch = 64;
constexpr const char* kModel = "mlp:64-128-10";
constexpr const char* kDeepModel = "mlp:64-512-512-512-512-512-10";  // 12 parameters, 4.3 MB

std::shared_ptr<nn::Module> make_model(const char* name, Device device, std::uint64_t seed = 0) {
  const auto model = nn::make_mlp(name, seed);
  model->to(device);
  return model;
}

Variable mean_loss(nn::Module& net, const Rows& rows) {
  return cross_entropy(net(Variable(rows.x)), rows.labels);
}

// One gradient stands for all in the output: that of the output bias of digit 0.
double shown_gradient(const nn::Module& model) {
  return model.parameters().back().grad().to_vector<double>()[0];
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

// Averages the gradients of two ranks, whose losses have these weights; prints them, and returns
// how far the average is from one device's.
double average_over_ranks(const Rows& batch, const std::vector<double>& weights,
                          const std::vector<Device>& devices) {
  const double single = single_gradient(batch);
  double average = 0;
  std::vector<double> own(kRanks);
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

// The loop of tutorial 03 on this rank's rows; after_backward may average gradients by hand.
void train(nn::Module& net, const Rows& digits, std::size_t num_steps, std::size_t rank,
           std::size_t num_ranks, const std::function<void()>& after_backward) {
  runtime::Stream& stream = net.parameters()[0].value().stream();
  const Device device = stream.device().device();
  optim::Sgd sgd(net.parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  for (std::size_t step = 0; step < num_steps; ++step) {
    const trace::ScopedSpan span(trace::Lane::host, trace::Category::step, "step");
    const runtime::DeviceSpan on_gpu(stream, trace::Lane::host, trace::Category::step, "step");
    sgd.zero_grad();
    mean_loss(net, digits.batch(step, kBatch).shard(rank, num_ranks, device)).backward();
    after_backward();
    sgd.step();
  }
}

// Rank 0's model after training on two ranks: with Ddp, or by hand when overlap is not given.
std::shared_ptr<nn::Module> train_ranks(std::optional<parallel::Overlap> overlap,
                                        const Rows& digits, std::size_t num_steps,
                                        const std::vector<Device>& devices) {
  std::shared_ptr<nn::Module> trained;
  tutorial::on_ranks(devices, [&](comm::Communicator& group, std::size_t rank, Device device) {
    const auto model = make_model(kDeepModel, device, /*seed=*/rank);  // the ranks differ
    if (!overlap) {
      for (const Variable& p : model->parameters()) group.broadcast(p.value(), 0);
      train(*model, digits, num_steps, rank, kRanks, [&] { average_gradients(*model, group); });
    } else {
      parallel::DdpOptions options;
      options.reducer.bucket_byte_limits = {1 << 20};  // bucket_cap_mb=1; the default is 25
      options.reducer.overlap = *overlap;
      parallel::Ddp net(model, group, options);  // broadcasts rank 0's weights, too
      train(net, digits, num_steps, rank, kRanks, [] {});
    }
    if (rank == 0) trained = model;
  });
  return trained;
}

void compare_ways(const Rows& digits, std::size_t num_steps, const std::vector<Device>& devices) {
  const auto one = make_model(kDeepModel, devices[0]);
  train(*one, digits, num_steps, /*rank=*/0, /*num_ranks=*/1, [] {});
  std::string table = "                 all-reduces       step   exposed comm.  overlapped\n";
  using Way = std::pair<std::optional<parallel::Overlap>, const char*>;
  for (const auto& [overlap, name] :
       {Way{std::nullopt, "per parameter"}, Way{parallel::Overlap::after_backward, "in buckets"},
        Way{parallel::Overlap::during_backward, "overlapped"}}) {
    trace::reset_collective_counts();
    trace::start();
    const auto trained = train_ranks(overlap, digits, num_steps, devices);
    runtime::record_device_spans();
    trace::stop();
    tutorial::check_close(
        fmt::format("{}: weights after {} steps against one device", name, num_steps),
        tutorial::max_abs_difference(*trained, *one), tutorial::weight_tolerance(num_steps));
    const auto step = *trace::median_step(trace::collect().spans, /*rank=*/0);
    for (const trace::CollectiveCount& count : trace::collective_counts()) {
      if (count.rank != 0 || count.operation != "all_reduce") continue;
      table += fmt::format("{:<14} {:>5} a step {:>8.2f} ms {:>12.2f} ms {:>8.2f} ms\n", name,
                           count.num_calls / num_steps, 1e3 * step.step, 1e3 * step.exposed_comm,
                           1e3 * step.overlapped_comm);
    }
  }
  fmt::print("{}", table);
  fmt::print(
      "exposed: the rank computes nothing meanwhile. Buckets save calls; overlapping starts a\n"
      "bucket's all-reduce while backward computes the next gradients.\n");
  tutorial::note_sharing(devices, 2);  // computing and communicating
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
  tutorial::step(1, "32 rows on each of two ranks: the mean of their means is the mean");
  tutorial::check_close("average and one device",
                        average_over_ranks(digits.part(0, 64), {1, 1}, devices), 1e-6);

  tutorial::step(2, "2 rows on rank 0, 1 row on rank 1: now it is not");
  average_over_ranks(digits.part(0, 3), {1, 1}, devices);
  fmt::print("weigh each rank's loss by its rows * 2 ranks / 3 rows, so by 4/3 and 2/3:\n");
  tutorial::check_close("average and one device",
                        average_over_ranks(digits.part(0, 3), {4.0 / 3, 2.0 / 3}, devices), 1e-6);

  tutorial::step(3, "three ways to average, the same weights");
  compare_ways(digits, options.fast ? 20 : 40, devices);
  tutorial::step(4, "no_sync: gradients of two batches, one all-reduce");
  accumulate(digits, devices);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::tutorial::run_main(argc, argv, "How does DDP train one model on many ranks?",
                                      run, {.num_devices = kRanks});
}
