// 06: What must several devices do to train one model together?
//
// Each device has a copy of the model, a replica, and trains it on some of the rows. The replicas
// are one model as long as they start alike and make the same steps. So three lines come to the
// loop of tutorial 03: broadcast the first weights, take a shard of each batch, and average the
// gradients before each step. Forget one, and training goes on as if nothing were wrong.
//
// You will see: the loop of 03 on several devices, each a rank with a replica of its own, which
// ends with the weights of one device; then the average left out: test accuracy hides that, the
// weights show it. --without leaves out any of the three lines. Compare the files: diff
// 03_train_model.cpp 06_train_replicas.cpp. In tutorial 10 Ddp does what is done by hand here.
//
// Run:  06_train_replicas [--batch 64] [--lr 0.1] [--without nothing|broadcast|shard|average]
//                         [--device auto|cpu|cuda] [--fast]
//
// Expected output with --fast: tutorials/expected/06.txt

#include <lockstep.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tutorials/common.h"

namespace {

using namespace lockstep;

constexpr const char* kModel = "mlp:64-128-10";  // Linear(64, 128), ReLU, Linear(128, 10)

constexpr int kBatch = 64;
constexpr double kRate = 0.1;

int batch_size = kBatch;       // --batch: rows of a step
double learning_rate = kRate;  // --lr

constexpr const char* kAverageLast = "average-last";  // all lines, then step 5

std::string asked_without = kAverageLast;  // --without
std::string without = "nothing";           // the line that is left out now

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

using Models = std::vector<std::shared_ptr<nn::Module>>;

// Trains with one rank on each device, and returns the ranks' models. A single device is rank 0 of
// 1.
Models train_on(const std::vector<Device>& devices, int epochs) {
  Models trained(devices.size());
  tutorial::on_ranks(devices, [&](comm::Communicator& ranks, int rank, Device device) {
    trained[rank] = make_model(device, /*seed=*/rank);
    train(ranks, trained[rank], device, epochs);
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

double test_accuracy(nn::Module& model) {
  return 100 * nn::accuracy(model, datasets::load_digits().test);
}

// How far each rank's weights are from one device's: the largest difference of a weight.
double difference_from(const nn::Module& one, const Models& models) {
  double largest = 0;
  for (const auto& model : models) {
    largest = std::max(largest, tutorial::max_abs_difference(*model, one));
  }
  return largest;
}

void print_models(const char* name, const Models& models, const nn::Module& one) {
  for (std::size_t rank = 0; rank < models.size(); ++rank) {
    fmt::print("{:<22} rank {} {:>12.1f} % {:>22.2g}\n", name, rank, test_accuracy(*models[rank]),
               tutorial::max_abs_difference(*models[rank], one));
  }
}

// A model that is right more often than this could have been trained correctly.
bool hides_it(double accuracy, double of_one_device) {
  return accuracy > of_one_device - 3;
}

// Two devices without the average: what shows it?
std::string leave_average_out(const Models& right, nn::Module& one,
                              const std::vector<Device>& devices, int epochs) {
  without = "average";
  const Models wrong = train_on(devices, epochs);
  without = "nothing";
  fmt::print("                              test accuracy  weights differ by\n");
  fmt::print("{:<29} {:>12.1f} %\n", "one device", test_accuracy(one));
  print_models("with the average", right, one);
  print_models("without the average", wrong, one);
  fmt::print("weights differ by: the largest difference from one device's\n");
  const double accuracy = test_accuracy(*wrong[0]);
  if (batch_size == kBatch && learning_rate == kRate) {
    tutorial::check("without the average rank 0's accuracy is within 3 % of one device's",
                    std::abs(accuracy - test_accuracy(one)) < 3);
  }
  tutorial::check("without the average the weights are others, and not the same on both ranks",
                  tutorial::max_abs_difference(*wrong[0], one) > 1e-2 &&
                      tutorial::max_abs_difference(*wrong[0], *wrong[1]) > 1e-2);
  return fmt::format(
      " Without the average {:.1f} % of the test digits are right instead of {:.1f} %{}weights "
      "differ by {:.2f}.",
      accuracy, test_accuracy(one),
      hides_it(accuracy, test_accuracy(one)) ? ", which hides it, but " : ", and ",
      difference_from(one, wrong));
}

// What is wrong without one of the lines, as far as the figures say it.
std::string describe_wrong(const Models& models, nn::Module& one) {
  const double accuracy = test_accuracy(*models[0]);
  return fmt::format(
      "Without the {} weights differ from one device's by {:.2f}. Test accuracy{}: "
      "{:.1f} % instead of {:.1f} %.",
      without, difference_from(one, models),
      hides_it(accuracy, test_accuracy(one)) ? " hides it" : " is lower, too", accuracy,
      test_accuracy(one));
}

void run(const tutorial::Options& options) {
  require(batch_size % 4 == 0, ErrorCode::Usage, "--batch", "expected a multiple of 4, found {}",
          batch_size);
  if (asked_without != kAverageLast) without = asked_without;
  const int epochs = 5;
  const int num_rows = datasets::kNumTrainDigits;
  const int steps = epochs * ((num_rows - 1) / batch_size + 1);

  tutorial::step(1, "one gradient, from each rank's rows and averaged");
  show_gradients(options.devices(1));
  show_gradients(options.devices(2));

  tutorial::step(2, "one device trains");
  const auto one = train_on(options.devices(1), epochs)[0];

  Models two, several;
  double largest = 0;
  for (const int count : {2, 4}) {
    tutorial::step(count == 2 ? 3 : 4, fmt::format("{} devices train", count));
    several = train_on(options.devices(count), epochs);
    if (count == 2) two = several;
    const double difference = difference_from(*one, several);
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
  std::string outcome;
  if (without == "nothing") {
    outcome =
        fmt::format("2 or 4 devices then end with the weights of one, within {:.0e}.", largest);
    if (asked_without == kAverageLast) {
      tutorial::step(5, "2 devices train without the average");
      outcome += leave_average_out(two, *one, options.devices(2), epochs);
    }
  } else {
    outcome = describe_wrong(several, *one);
  }
  tutorial::answer(
      "Start with the same weights, train on different rows, and average the gradients before each "
      "step. " +
          outcome,
      {{"--without average", "Four devices: does accuracy hide it there?"},
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
    flags.add_choice(
        "--without", asked_without, {kAverageLast, "nothing", "broadcast", "shard", "average"},
        "a line to leave out; average-last: all lines, then again without the average");
  };
  return run_main(argc, argv, "What must several devices do to train one model together?", run,
                  {.num_devices = 4, .add_flags = add_flags});
}
