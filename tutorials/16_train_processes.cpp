// 16: What does a DDP program look like if its ranks are processes and it runs on any hardware?
//
// On one machine ranks can be threads; on several they must be processes, and it is better if the
// program need not know. It asks its environment for its rank, takes its rows, and trains: alone,
// it is rank 0 of 1.
//
// You will see: who gets which rows; one gradient on each rank, and their average; the loss, logged
// by rank 0 alone; that the weights are those of one device. The program does not ask how many
// ranks there are or who started it: alone it is rank 0 of 1. With GPUs rank r takes cuda:r; where
// there are fewer, ranks share them, and gradients travel through memory of the CPU: right, but
// slow. With a GPU for each rank, `lockstep train --ranks processes` sends them by NCCL.
//
// Run:  16_train_processes [--ranks 4] [--until 0.2] [--device auto|cpu|cuda] [--fast]
//       lockstep run --standalone --nproc-per-node 2 -- 16_train_processes
//       torchrun --no-python --standalone --nproc-per-node 2 16_train_processes
//       RANK=0 WORLD_SIZE=1 16_train_processes                 one rank
//
// Expected output with --fast: tutorials/expected/16.txt

#include <cmath>

#include "engine/autograd/ops/ops.h"
#include "engine/launch/rank_environment.h"
#include "engine/nn/models.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/ddp/ddp.h"
#include "engine/plan/collective_plan.h"
#include "engine/runtime/logical_device.h"
#include "tutorials/common.h"
#include "tutorials/ranks.h"
#include "tutorials/rows.h"

namespace {

using namespace lockstep;
using tutorial::Rows;

constexpr int kBatch = 64;
constexpr const char* kModel = "mlp:64-128-10";
constexpr int kMostEpochs = 50;
double target_loss = 0.2;  // --until

std::shared_ptr<nn::Module> make_model(Device device) {
  const auto model = nn::make_mlp(kModel, /*seed=*/0);
  model->to(device);
  return model;
}

struct Place {
  int rank = 0;
  int num_ranks = 1;
  Device device;
};

// The rank's part of a batch. Its loss is a mean over fewer rows than the others' where the batch
// cannot be cut evenly (the last one of an epoch), so it is weighted by its share (tutorial 09).
Variable weighted_loss(nn::Module& net, const Rows& batch, const Place& place) {
  const Rows shard = batch.shard(place.rank, place.num_ranks, place.device);
  const double share = 1.0 * shard.count() / batch.count();
  return scale(cross_entropy(net(shard.x), shard.labels), share * place.num_ranks);
}

// The loop of tutorial 03. It is the same on one device and on each rank of many: `net` averages
// gradients in its backward pass, or does not need to. Ends when is_done(epoch) says so.
void train(nn::Module& net, const Rows& digits, const Place& place,
           const std::function<bool(int)>& is_done) {
  optim::Sgd sgd(net.parameters(), {.learning_rate = 0.05, .momentum = 0.9});
  for (int epoch = 0; epoch == 0 || !is_done(epoch); ++epoch) {
    for (int step = 0; step < digits.steps_per_epoch(kBatch); ++step) {
      sgd.zero_grad();
      weighted_loss(net, digits.batch(step, kBatch), place).backward();
      sgd.step();
    }
  }
}

// One number of each rank, on all ranks.
std::vector<double> gather(comm::Communicator& group, double value, Device device) {
  const Tensor mine = Tensor::full({1}, value, DType::float32, device);
  const std::size_t num_ranks = group.world_size();
  const Tensor all = Tensor::empty({num_ranks}, DType::float32, device);
  group.all_gather(mine, all);
  return all.to_vector<double>();
}

// Each rank says which rows it takes; rank 0 prints what it has heard.
void show_partition(comm::Communicator& group, const Place& place) {
  const plan::Chunk rows = plan::even_chunk(kBatch, place.num_ranks, place.rank);
  const auto first = gather(group, rows.offset, place.device);
  const auto end = gather(group, rows.end(), place.device);
  if (place.rank != 0) return;
  fmt::print("rank   rows of batch 0   rows of batch 1\n");
  for (int r = 0; r < place.num_ranks; ++r) {
    const auto range = [&](double begin) {
      return fmt::format("{} ... {}", begin + first[r], begin + end[r] - 1);
    };
    fmt::print("{:>4} {:>17} {:>17}\n", r, range(0), range(kBatch));
  }
}

// One gradient stands for all: that of the output bias of digit 0.
double shown_gradient(const nn::Module& model) {
  return model.parameters().back().grad()[0];
}

void show_gradients(comm::Communicator& group, const Rows& digits, const Place& place) {
  const Rows batch = digits.batch(0, kBatch);
  const auto alone = make_model(place.device);  // without DDP: the gradient of this rank's rows
  weighted_loss(*alone, batch, place).backward();
  const auto own = gather(group, shown_gradient(*alone), place.device);
  parallel::Ddp net(make_model(place.device), group);
  weighted_loss(net, batch, place).backward();  // averaged when backward() returns
  if (place.rank != 0) return;
  std::string line;
  for (std::size_t r = 0; r < own.size(); ++r) {
    line += fmt::format("{}rank {} {:+.6f}", r == 0 ? "" : "   ", r, own[r]);
  }
  const auto single = make_model(place.device);
  weighted_loss(*single, batch, {0, 1, place.device}).backward();
  fmt::print("{}\naverage {:+.6f}   one device {:+.6f}\n", line, shown_gradient(net),
             shown_gradient(*single));
  tutorial::check_close("the average and one device's gradient",
                        std::abs(shown_gradient(net) - shown_gradient(*single)), 1e-6);
}

void train_and_compare(comm::Communicator& group, const Rows& digits, const Place& place) {
  const auto model = make_model(place.device);
  parallel::Ddp net(model, group);
  const Rows shown = digits.part(0, kBatch);
  double loss = 0;
  int num_epochs = 0;
  if (place.rank == 0) fmt::print("loss of the first {} rows, after each epoch:\n", kBatch);
  // Every rank has the same weights and looks at the same rows, so all end after the same epoch.
  train(net, digits, place, [&](int epoch) {
    num_epochs = epoch;
    loss = cross_entropy((*model)(shown.x), shown.labels).item();
    if (place.rank == 0) fmt::print("epoch {}  loss {:.3f}\n", epoch, loss);
    return loss < target_loss || epoch == kMostEpochs;
  });
  if (place.rank != 0) return;
  tutorial::check(fmt::format("the loss has fallen below {}", target_loss), loss < target_loss);
  const auto single = make_model(place.device);
  train(*single, digits, {0, 1, place.device}, [&](int epoch) { return epoch == num_epochs; });
  const int num_steps = num_epochs * digits.steps_per_epoch(kBatch);
  const double difference = tutorial::max_abs_difference(*model, *single);
  tutorial::check_close(fmt::format("weights after {} steps", num_steps), difference,
                        tutorial::weight_tolerance(num_steps));
  tutorial::FiguresOfRanks::tell({1.0 * num_epochs, loss, difference});
}

void be_a_rank(const tutorial::Options& options) {
  const DeviceType type = options.device_type;
  tutorial::RankProcess me(type);
  const int num_devices = type == DeviceType::cpu ? me.world_size() : runtime::num_devices(type);
  const Place place{me.rank(), me.world_size(),
                    launch::device_of_rank(me.environment(), type, num_devices)};
  if (place.rank == 0) {
    fmt::print("{} ranks, {}, {}\n", place.num_ranks, me.start(), me.group().description());
  }
  const Rows digits = tutorial::load_digits(place.device);
  show_partition(me.group(), place);
  show_gradients(me.group(), digits, place);
  train_and_compare(me.group(), digits, place);
}

void run(const tutorial::Options& options) {
  if (tutorial::is_rank()) return be_a_rank(options);
  const tutorial::FiguresOfRanks figures;
  const int num_ranks = options.num_devices;
  const int code = tutorial::run_as_ranks(num_ranks, tutorial::own_command());
  tutorial::check("all ranks succeeded", code == 0);
  const std::vector<double> heard = figures.heard(3);
  tutorial::answer(
      fmt::format(
          "It looks like a program for one device, except that a rank takes its part of each "
          "batch, Ddp averages the gradients, and only rank 0 logs. {} processes brought the loss "
          "to {:.3f} in {:.0f} epochs, and no weight differs from one device's by more than "
          "{:.1g}.",
          num_ranks, heard[1], heard[0], heard[2]),
      {{"--ranks 2", "Other parts of each batch, the same average, loss and weights."},
       {"--until 0.1", "More epochs; every rank computes the same loss, so all stop together."}});
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::tutorial::run_ranks_main(
      argc, argv,
      "What does a DDP program look like if its ranks are processes and it runs on any hardware?",
      run,
      /*num_ranks=*/4, [](lockstep::tutorial::Flags& flags) {
        flags.add_number("--until", target_loss, 0.01, 2.0, "train until the loss is below this");
      });
}
