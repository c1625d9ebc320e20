// How do processes train one model with nothing but send and recv?
//
// PyTorch's "Writing Distributed Applications" partitions MNIST over the ranks, trains with a batch
// of 128 / world size on each, and averages the gradients by hand, parameter by parameter, in a
// ring of its own. So does this program: no Ddp, no collective, only messages to the right.
//
// Run:  average_gradients                           starts its two ranks itself, on the digits
//       lockstep run --standalone --nproc-per-node 2 -- average_gradients --data-dir data   MNIST
//       [--ranks 2] [--epochs 10] [--device auto|cpu|cuda] [--fast]
//
// docs/from-the-texts.md shows what it prints.

#include <algorithm>
#include <string>
#include <vector>

#include "datasets/dataset.h"
#include "engine/autograd/ops/ops.h"
#include "engine/data/labelled_rows.h"
#include "engine/data/sampler.h"
#include "engine/launch/rank_environment.h"
#include "engine/nn/models.h"
#include "engine/optim/optimizer.h"
#include "engine/runtime/logical_device.h"
#include "tutorials/common.h"
#include "tutorials/ranks.h"

namespace {

using namespace lockstep;
using data::LabelledTensors;

constexpr int kBatch = 128;  // rows per step over all ranks
std::string data_dir;        // --data-dir; empty: the digits
int num_epochs = 10;         // --epochs

struct Partitions {
  std::string name;
  LabelledTensors train;                          // on cpu:0, all rows
  std::vector<std::vector<std::size_t>> of_rank;  // which rows each rank has, equally many
  std::size_t rows_per_step = 0;                  // on one rank
};

// Every rank draws the same order, and takes its slice of it. As in PyTorch's tutorial each slice
// has floor(rows / ranks) rows, so that the ranks make equally many steps of equally many rows.
Partitions partition_dataset(int world_size) {
  const std::string name = data_dir.empty() ? "digits" : "mnist";
  const auto dataset = datasets::load_dataset(datasets::parse_dataset(name), data_dir, /*seed=*/0);
  Partitions partitions{
      name, data::to_tensors(dataset.train), {}, std::size_t{1} * kBatch / world_size};
  const std::size_t num_rows = partitions.train.num_rows();
  const auto order = data::epoch_order(num_rows, /*seed=*/1234, /*epoch=*/0, data::Shuffle::on);
  const std::size_t size = num_rows / world_size;
  for (int rank = 0; rank < world_size; ++rank) {
    const auto begin = order.begin() + rank * size;
    partitions.of_rank.emplace_back(begin, begin + size);
  }
  return partitions;
}

// Numbers first ... first + count - 1 of a rank's rows, or as many as there are.
std::vector<std::size_t> rows_of_step(const Partitions& partitions, int rank, std::size_t first) {
  const std::vector<std::size_t>& rows = partitions.of_rank[rank];
  const std::size_t end = std::min(first + partitions.rows_per_step, rows.size());
  return {rows.begin() + first, rows.begin() + end};
}

// The tutorial's ring: in each of world size - 1 steps a rank passes on to the right what came from
// the left, and adds it to its sum. Whole tensors travel: each rank sends (n-1) * bytes, where a
// ring of chunks (08_pass_chunks) sends 2(n-1)/n * bytes. For two ranks that is the same.
void ring_all_reduce(comm::Communicator& group, const Tensor& tensor) {
  const int size = group.world_size();
  const int right = (group.rank() + 1) % size;
  const int left = (group.rank() - 1 + size) % size;
  Tensor passed_on = tensor.clone();
  for (int step = 1; step < size; ++step) {
    const Tensor arrived = Tensor::empty_like(tensor);
    comm::Work sent = group.send(passed_on, right, comm::Launch::async);
    group.recv(arrived, left);
    sent.wait();
    tensor += arrived;
    passed_on = arrived;
  }
}

// Each rank's loss is a mean over equally many rows, so the mean over ranks is the whole batch's.
void average_gradients(comm::Communicator& group, const nn::Module& model) {
  for (const Variable& parameter : model.parameters()) {
    ring_all_reduce(group, parameter.grad());
    parameter.grad().scale_(1.0 / group.world_size());
  }
}

std::shared_ptr<nn::Module> make_model(const LabelledTensors& rows, Device device) {
  const auto model = nn::make_mlp(fmt::format("mlp:{}-128-10", rows.x.size(1)), /*seed=*/1234);
  model->to(device);
  return model;
}

// The gradient of the mean loss over some rows, in the model's parameters. Returns the loss.
double compute_gradients(nn::Module& model, const LabelledTensors& batch) {
  const Variable loss = cross_entropy(model(batch.x), batch.labels);
  loss.backward();
  return loss.item();
}

// The tutorial's run(): epochs of steps, at most num_steps. rows(first): what this process computes
// on in the step that begins with row `first` of each part; average(model): what it does between
// backward and step. Returns the mean loss of each epoch.
template <typename Rows, typename Average>
std::vector<double> train(nn::Module& model, const Partitions& partitions, int num_steps,
                          const Rows& rows, const Average& average) {
  const Device device = model.parameters()[0].device();
  optim::Sgd optimizer(model.parameters(), {.learning_rate = 0.01, .momentum = 0.5});
  std::vector<double> losses;
  for (int step = 0; step < num_steps;) {
    double loss_sum = 0;
    int num_batches = 0;
    for (std::size_t first = 0; first < partitions.of_rank[0].size() && step < num_steps; ++step) {
      optimizer.zero_grad();
      loss_sum += compute_gradients(model, partitions.train.take(rows(first), device));
      average(model);
      optimizer.step();
      ++num_batches;
      first += partitions.rows_per_step;
    }
    losses.push_back(loss_sum / num_batches);
  }
  return losses;
}

// Trains on this rank's part of the rows.
std::vector<double> train_rank(comm::Communicator& group, nn::Module& model,
                               const Partitions& partitions, int num_steps) {
  const int rank = group.rank();
  return train(
      model, partitions, num_steps,
      [&](std::size_t first) { return rows_of_step(partitions, rank, first); },
      [&](const nn::Module& trained) { average_gradients(group, trained); });
}

// Twenty steps of the ranks, and of one process with the rows of all ranks in each step. Returns
// the largest difference of their weights, on rank 0.
double compare_with_one(comm::Communicator& group, const Partitions& partitions, Device device) {
  constexpr int kSteps = 20;  // rounding has not grown yet
  const auto model = make_model(partitions.train, device);
  train_rank(group, *model, partitions, kSteps);
  if (group.rank() != 0) return 0;
  const auto alone = make_model(partitions.train, device);
  const auto rows_of_all = [&](std::size_t first) {
    std::vector<std::size_t> rows;
    for (int rank = 0; rank < group.world_size(); ++rank) {
      const auto part = rows_of_step(partitions, rank, first);
      rows.insert(rows.end(), part.begin(), part.end());
    }
    return rows;
  };
  train(*alone, partitions, kSteps, rows_of_all, [](const nn::Module&) {});
  const double difference = tutorial::max_abs_difference(*model, *alone);
  tutorial::check_close(fmt::format("weights after {} steps", kSteps), difference,
                        tutorial::weight_tolerance(kSteps));
  return difference;
}

void be_a_rank(const tutorial::Options& options) {
  const DeviceType type = options.device_type;
  tutorial::RankProcess me(type);
  const int num_devices = type == DeviceType::cpu ? me.world_size() : runtime::num_devices(type);
  const Device device = launch::device_of_rank(me.environment(), type, num_devices);
  const int rank = me.rank();
  const Partitions partitions = partition_dataset(me.world_size());
  const std::size_t num_rows = partitions.of_rank[rank].size(), in_step = partitions.rows_per_step;
  fmt::print("rank {} of {} has {} of the {} rows of {}, {} a step\n", rank, me.world_size(),
             num_rows, partitions.train.num_rows(), partitions.name, in_step);
  const double difference = compare_with_one(me.group(), partitions, device);
  const auto model = make_model(partitions.train, device);
  const int num_steps = num_epochs * ((num_rows + in_step - 1) / in_step);
  const auto losses = train_rank(me.group(), *model, partitions, num_steps);
  for (std::size_t epoch = 0; epoch < losses.size(); ++epoch) {
    fmt::print("rank {}, epoch {}: {:.4f}\n", rank, epoch, losses[epoch]);
  }
  if (rank != 0) return;
  if (num_epochs > 1) tutorial::check("the loss has fallen", losses.back() < losses.front());
  tutorial::FiguresOfRanks::tell({losses.front(), losses.back(), difference});
}

void run(const tutorial::Options& options) {
  if (tutorial::is_rank()) return be_a_rank(options);
  const tutorial::FiguresOfRanks figures;
  const int num_ranks = options.num_devices;
  const int code = tutorial::run_as_ranks(num_ranks, tutorial::own_command());
  tutorial::check("all ranks succeeded", code == 0);
  const std::vector<double> heard = figures.heard(3);
  tutorial::answer(
      fmt::format("Each sends its gradients to the right and adds up what comes from the left: "
                  "rank 0's loss fell from {:.3f} to {:.3f}, and after 20 steps the weights are "
                  "those of one process with all {} rows of each step (within {:.0e}).",
                  heard[0], heard[1], kBatch, heard[2]),
      {{"--ranks 4", "32 rows a step on each of four; every tensor travels three times."},
       {"--epochs 30", "The same ring for longer: a lower loss."}});
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::tutorial::run_ranks_main(
      argc, argv, "How do processes train one model with nothing but send and recv?", run,
      /*num_ranks=*/2, [](lockstep::tutorial::Flags& flags) {
        flags.add_text("--data-dir", data_dir, "where MNIST lies (none: the digits)");
        flags.add_number("--epochs", num_epochs, 1, 1000, "passes over the data");
      });
}
