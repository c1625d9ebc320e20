// 06: What must several devices do to train one model together?
//
// You will see: the loop of tutorial 03 on several devices, each a rank with a copy of the model of
// its own; the three lines that make the copies one model; and, with --without, what becomes of it
// if one of them is missing. Compare the files: diff 03_train_model.cpp 06_train_replicas.cpp.
// In tutorial 10 Ddp does what is done by hand here.
//
// Run:  06_train_replicas [--batch 64] [--lr 0.1] [--without broadcast|shard|average]
//                         [--device auto|cpu|cuda] [--fast]
//
// Expected output with --fast: tutorials/expected/06.txt

#include <lockstep.h>

#include <memory>
#include <string>

#include "tutorials/common.h"

namespace {

using namespace lockstep;

constexpr const char* kModel = "mlp:64-128-10";  // Linear(64, 128), ReLU, Linear(128, 10)

int batch_size = 64;         // --batch: rows of a step
double learning_rate = 0.1;  // --lr

std::string without = "nothing";  // --without

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

// All ranks start with the weights of rank 0.
void broadcast_weights(comm::Communicator& ranks, const nn::Module& model) {
  for (const Variable& parameter : model.parameters()) ranks.broadcast(parameter.value(), 0);
}

// Every rank's gradients become their mean over the ranks.
void average_gradients(comm::Communicator& ranks, const nn::Module& model) {
  for (const Variable& parameter : model.parameters()) {
    ranks.all_reduce(parameter.grad(), {.op = comm::ReduceOp::average});
  }
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
  options.rank = without == "shard" ? 0 : ranks.rank();
  return options;
}

// The training loop of every rank. Returns the mean loss of each epoch.
std::vector<double> train(comm::Communicator& ranks, const std::shared_ptr<nn::Module>& model,
                          Device device, int epochs) {
  if (without != "broadcast") broadcast_weights(ranks, *model);
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
      const Variable loss = criterion((*model)(batch.x), batch.labels);
      loss.backward();
      if (without != "average") average_gradients(ranks, *model);
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

// One gradient of the first batch, that of the output bias of digit 0: of each rank's rows, and
// averaged.
void show_gradients(const std::vector<Device>& devices) {
  const int num_ranks = std::ssize(devices);
  std::vector<double> own(num_ranks), average(num_ranks);
  tutorial::on_ranks(devices, [&](comm::Communicator& ranks, int rank, Device device) {
    const auto model = make_model(device);
    data::DataLoader loader(datasets::load_digits(0, datasets::kNumTrainDigits),
                            batches_of(ranks, device));
    const data::Batch batch = *loader.next();
    nn::CrossEntropyLoss()((*model)(batch.x), batch.labels).backward();
    const Variable bias = model->parameters().back();
    own[rank] = bias.grad()[0];
    average_gradients(ranks, *model);
    average[rank] = bias.grad()[0];
  });
  if (num_ranks == 1) fmt::print("one device has all {} rows:  {:+.6f}\n", batch_size, own[0]);
  for (int rank = 0; rank < num_ranks && num_ranks > 1; ++rank) {
    fmt::print("rank {} has {} of them:       {:+.6f}, after the average {:+.6f}\n", rank,
               batch_size / num_ranks, own[rank], average[rank]);
  }
}

void run(const tutorial::Options& options) {
  require(batch_size % 4 == 0, ErrorCode::Usage, "--batch", "expected a multiple of 4, found {}",
          batch_size);
  const int epochs = options.fast ? 2 : 5;
  const int num_rows = datasets::kNumTrainDigits;
  const int steps = epochs * ((num_rows - 1) / batch_size + 1);

  tutorial::step(1, "one gradient, from each rank's rows and averaged");
  show_gradients(options.devices(1));
  show_gradients(options.devices(2));

  tutorial::step(2, "one device trains");
  const auto one = train_on(options.devices(1), epochs);

  double largest = 0;
  int number = 3;
  for (const int count : {2, 4}) {
    tutorial::step(number++, fmt::format("{} devices train", count));
    const auto several = train_on(options.devices(count), epochs);
    const double difference = tutorial::max_abs_difference(*several, *one);
    largest = std::max(largest, difference);
    if (without == "nothing") {
      tutorial::check_close(
          fmt::format("weights of {} devices and of one after {} steps", count, steps), difference,
          tutorial::weight_tolerance(steps));
    } else {
      tutorial::check(fmt::format("without the {} the weights differ: largest difference {:.2g}",
                                  without, difference),
                      difference > 1e-2);
    }
  }
  const std::string outcome =
      without == "nothing"
          ? fmt::format("Then 2 or 4 devices end with the weights of one, within {:.0e}.", largest)
          : fmt::format("Without the {} they differ from one device's by {:.2f}.", without,
                        largest);
  tutorial::answer(
      "They start with the same weights, train on different rows, and average the gradients before "
      "each step: three more lines than on one device. " +
          outcome,
      {{"--without average", "Each rank trains on its own rows only: several different models."},
       {"--without broadcast",
        "Gradients of different models are averaged, which fits none of them."},
       {"--without shard", "All ranks take the rows of rank 0: three quarters are never seen."}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  const auto add_flags = [](Flags& flags, Options&) {
    flags.add_number("--batch", batch_size, 4, 1500, "rows per step over all ranks, 4, 8, 12, ...");
    flags.add_number("--lr", learning_rate, 1e-4, 0.5, "learning rate");
    flags.add_choice("--without", without, {"nothing", "broadcast", "shard", "average"},
                     "a line to leave out");
  };
  return run_main(argc, argv, "What must several devices do to train one model together?", run,
                  {.num_devices = 4, .add_flags = add_flags});
}
