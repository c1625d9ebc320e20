// 05: How do ranks add up their gradients, and what does the simplest way cost?
//
// You will see: the naive all-reduce (everybody sends to rank 0, which adds and sends the sum back)
// as a plan, printed; on numbers small enough to follow; by hand with send and recv on the
// gradients of the digits model; and as the library's all_reduce (PyTorch: dist.all_reduce). The
// bytes each rank sent are counted and compared with what the plan predicts. Rank 0 sends (n-1)
// times as much as the others; tutorial 08 spreads that evenly. Ranks are threads here; between
// processes the calls are the same.
//
// Run:  05_sum_gradients [--devices 4] [--device auto|cpu|cuda] [--fast]
//
// Expected output (abridged):
//   step 1: reduce to rank 0
//     rank 1 -> rank 0  add   [0, 3)  12 B
//   step 2: broadcast from rank 0
//     rank 0 -> rank 1  copy  [0, 3)  12 B
//   after: broadcast from rank 0
//     rank 3:   10  100 1000
//   bytes sent    by hand  all_reduce  plan's prediction  (ring's prediction)
//   rank 0          115320      115320             115320                57656
//   rank 1           38440       38440              38440                57660
//   check: the bytes sent by all_reduce are those of the plan ... ok
//   check: every rank, by hand: largest difference 2.2e-08, tolerance 1e-06 ... ok

#include <functional>
#include <memory>
#include <vector>

#include "engine/comm/run_ranks.h"
#include "engine/nn/loss.h"
#include "engine/nn/mlp.h"
#include "engine/plan/interpreter.h"
#include "engine/plan/reduce_broadcast.h"
#include "engine/plan/scatter.h"
#include "engine/trace/counters.h"
#include "tutorials/common.h"
#include "tutorials/rows.h"

namespace {

using namespace lockstep;

constexpr const char* kModel = "mlp:64-128-10";
constexpr std::size_t kBatch = 64;
constexpr std::uint64_t kSeed = 0;

// A plan says who sends which elements to whom in which step. It is a plain value, made without
// memory or threads: the same plan is printed here, run below, and charged by the predictor.
void show_plan(int world_size) {
  tutorial::step(1, "the plan");
  const plan::CollectivePlan plan = plan::reduce_broadcast_all_reduce(world_size, 3);
  fmt::print("{}", plan::to_string(plan, sizeof(float)));

  tutorial::step(2, "what it does to three numbers per rank");
  plan::RankBuffers buffers;
  for (int rank = 0; rank < world_size; ++rank) {
    buffers.push_back({1.0 * (rank + 1), 10.0 * (rank + 1), 100.0 * (rank + 1)});
  }
  const auto print_buffers = [&](std::string_view when) {
    fmt::print("  {}\n", when);
    for (std::size_t rank = 0; rank < buffers.size(); ++rank) {
      fmt::print("    rank {}: {:>4} {:>4} {:>4}\n", rank, buffers[rank][0], buffers[rank][1],
                 buffers[rank][2]);
    }
  };
  print_buffers("at the start");
  for (const plan::Step& step : plan.steps) {
    plan::interpret_step(step, buffers);
    print_buffers("after: " + step.label);
  }
}

// The gradients of one rank's rows, one behind the other in a buffer. The loss is divided by the
// rows of the whole batch, so that the sum over ranks is the gradient of the whole batch's mean.
Tensor compute_gradients(const tutorial::Rows& shard) {
  const std::shared_ptr<nn::Sequential> model = nn::make_mlp(kModel, kSeed);  // same on all ranks
  model->to(shard.x.device());
  const nn::CrossEntropyLoss criterion(Reduction::sum);
  const Variable loss_sum = criterion((*model)(Variable(shard.x)), shard.labels);
  scale(loss_sum, 1.0 / kBatch).backward();
  const Tensor buffer = Tensor::empty({model->num_parameters()}, DType::float32, shard.x.device());
  std::size_t offset = 0;
  for (const Variable& parameter : model->parameters()) {
    buffer.slice(offset, parameter.shape()).copy_from(parameter.grad());
    offset += parameter.value().num_elements();
  }
  return buffer;
}

// The naive all-reduce by hand. Every rank calls it with a buffer of the same size and ends with
// the sum in it.
void all_reduce_by_hand(comm::Communicator& communicator, const Tensor& buffer) {
  if (communicator.rank() != 0) {
    communicator.send(buffer, 0);
    communicator.recv(buffer, 0);
    return;
  }
  const Tensor received = Tensor::empty(buffer.shape(), buffer.dtype(), buffer.device());
  for (int from = 1; from < communicator.world_size(); ++from) {  // always in this order, so that
    communicator.recv(received, from);                            // the sum has the same bits
    buffer.backend().add(buffer.stream(), buffer.view(), received.view(), buffer.view());
  }
  for (int to = 1; to < communicator.world_size(); ++to) communicator.send(buffer, to);
}

struct Outcome {
  std::vector<Tensor> sums;             // of each rank
  std::vector<std::size_t> bytes_sent;  // by each rank
};

// Runs one function as every rank, each on a thread and a device of its own: the gradients of the
// rank's rows, then the all-reduce, whose bytes the transport counts.
Outcome sum_gradients(const std::vector<Device>& devices,
                      const std::function<void(comm::Communicator&, const Tensor&)>& all_reduce) {
  const int world_size = static_cast<int>(devices.size());
  Outcome outcome;
  outcome.sums.resize(devices.size());
  const tutorial::Rows batch = tutorial::load_digits(devices[0]).batch(0, kBatch);
  const plan::ScatterPlan shards = plan::scatter_plan(kBatch, devices.size());  // as in tutorial 04
  trace::reset_collective_counts();
  comm::run_ranks(world_size, [&](comm::Communicator& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    plan::ScatterPart part;  // a rank for which no rows are left adds zeros
    if (rank < shards.parts.size()) part = shards.parts[rank];
    const Tensor buffer =
        compute_gradients(batch.part(part.offset, part.offset + part.size, devices[rank]));
    all_reduce(communicator, buffer);
    outcome.sums[rank] = buffer;
  });
  for (int rank = 0; rank < world_size; ++rank) {
    outcome.bytes_sent.push_back(trace::collective_bytes_of(rank));
  }
  return outcome;
}

void run(const tutorial::Options& options) {
  const std::vector<Device> devices = options.devices(options.num_devices);
  const int world_size = static_cast<int>(devices.size());
  show_plan(world_size);

  tutorial::step(3, "the gradients of the digits model, by hand and by all_reduce");
  const Outcome by_hand = sum_gradients(devices, all_reduce_by_hand);
  const Outcome by_library =
      sum_gradients(devices, [](comm::Communicator& communicator, const Tensor& buffer) {
        comm::CollectiveOptions collective;
        collective.plan = plan::AllReducePlan::reduce_broadcast;
        communicator.all_reduce(buffer, collective);
      });
  const std::size_t num_elements = by_hand.sums[0].num_elements();
  const plan::CollectivePlan plan = plan::reduce_broadcast_all_reduce(world_size, num_elements);
  const plan::CollectivePlan ring =
      plan::all_reduce_plan(plan::AllReducePlan::ring, world_size, num_elements);
  fmt::print(
      "{} has {} parameters: {} B of gradients on each of {} ranks,\nrank r being a thread that "
      "computes on {}:r\n",
      kModel, num_elements, by_hand.sums[0].num_bytes(), world_size,
      to_string(options.device_type));
  fmt::print("  bytes sent    by hand  all_reduce  plan's prediction  (ring's prediction)\n");
  std::vector<std::size_t> predicted;
  for (int rank = 0; rank < world_size; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    predicted.push_back(plan::elements_sent(plan, rank) * sizeof(float));
    fmt::print("  rank {:<6} {:>10}  {:>10}  {:>17}  {:>19}\n", rank, by_hand.bytes_sent[i],
               by_library.bytes_sent[i], predicted[i],
               plan::elements_sent(ring, rank) * sizeof(float));
  }
  tutorial::check("the bytes sent by hand are those of the plan", by_hand.bytes_sent == predicted);
  tutorial::check("the bytes sent by all_reduce are those of the plan",
                  by_library.bytes_sent == predicted);

  tutorial::step(4, "the same gradients as one device with the whole batch");
  const tutorial::Rows batch = tutorial::load_digits(devices[0]).batch(0, kBatch);
  const std::vector<Tensor> single(devices.size(), compute_gradients(batch));
  tutorial::check_close("every rank, by hand", tutorial::max_abs_difference(by_hand.sums, single),
                        1e-6);
  tutorial::check_close("every rank, all_reduce",
                        tutorial::max_abs_difference(by_library.sums, single), 1e-6);
  tutorial::check_close("by hand and all_reduce add in the same order, so no bit differs",
                        tutorial::max_abs_difference(by_hand.sums, by_library.sums), 0);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::tutorial::run_main(
      argc, argv, "How do ranks add up their gradients, and what does the simplest way cost?", run,
      {.num_devices = 4,
       .add_flags = [](lockstep::tutorial::Flags& flags, lockstep::tutorial::Options& options) {
         flags.add_number("--devices", options.num_devices, 2, 16, "how many, each with a rank");
       }});
}
