// 26: Why train with twice the batch on two devices, and what does it cost?
//
// A GPU is efficient with many rows. Two that share the batch of one have half as many each, and
// may gain nothing (tutorial 12). So texts double the batch with the devices, and, since the batch
// is larger, the learning rate. Three things change at once; a fourth goes unnoticed: an epoch has
// half as many steps. Only one change at a time shows which of them costs the accuracy.
//
// You will see: LeNet on one device and on two, as in Dive into Deep Learning's "Training on
// Multiple GPUs": the same weights. Then what the book does next: two devices, twice the batch and
// twice the learning rate; and each of these changes alone, several times from other first weights,
// because a single run says little. Tutorial 27 shows what the larger batch gains.
//
// Run:  26_double_batch [--batch 16] [--epochs 10] [--runs 10] [--guess 1|2|3|4]
//                       [--device auto|cpu|cuda] [--fast]
//       26_double_batch --dataset fashion-mnist --data-dir data --batch 256 --runs 3    the book's
//       data
//
// Expected output with --fast: tutorials/expected/26.txt

#include <fmt/ranges.h>
#include <lockstep.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "tutorials/common.h"

namespace {

using namespace lockstep;

constexpr int kComparedSteps = 20;  // later, rounding that training amplifies says more
constexpr double kLeNetRate = 0.2, kRate = 0.1;  // the book's
constexpr int kEpochsOfCauses = 3;
// Without batch norm, which is a cause of its own (28).
constexpr const char* kSmallNet = "cnn:16c3-p2-32c3-p2-10";

std::string dataset = "digits";  // --dataset
std::string data_dir = "data";   // --data-dir
int batch_size = 16;             // --batch
int num_epochs = 10;             // --epochs
int num_runs = 10;               // --runs

tutorial::Guess guess(
    "The book trains on two devices with twice the batch and twice the learning rate. Which of "
    "these changes alone costs the most accuracy?",
    {"having two devices", "the larger batch", "the larger learning rate",
     "half as many steps, because the batch is larger"});

struct Data {
  datasets::Dataset rows;
  nn::ModelData model;  // the images' shape, and how many classes
};

Data load_data() {
  Data data{datasets::load_dataset(datasets::parse_dataset(dataset), data_dir, /*seed=*/0), {}};
  data.model = {data.rows.train.image_shape(), data.rows.train.num_classes};
  nn::require_model_fits("lenet", data.model, dataset);
  return data;
}

// --- on one device and on two

struct Settings {
  int num_devices = 1;
  int batch = 0;
  double lr = 0;
  int num_steps = 0;
  int seed = 0;  // draws the first weights and the rows' order
};

struct Trained {
  double accuracy = 0;
  double seconds = 0;
  std::vector<Tensor> first_weights;  // after kComparedSteps steps, or as many as there were
};

double evaluate_accuracy(nn::Module& net, const Data& data, Device device) {
  data::DataLoader loader(data.rows.test,
                          {.batch = 256, .device = device, .row_shape = data.model.row});
  const NoGradScope no_grad;
  std::size_t num_correct = 0;
  for (const data::Batch& batch : loader) {
    num_correct += nn::count_correct(net(batch.x).value(), batch.labels);
  }
  return 1.0 * num_correct / data.rows.test.num_rows();
}

// SGD without momentum, as the book has it.
Trained train(const char* model, const Data& data, const Settings& settings,
              const std::vector<Device>& devices) {
  const auto net = nn::make_model(model, data.model, settings.seed, DType::float32, devices[0]);
  parallel::DataParallel wrapped(net, {.devices = devices});
  optim::Sgd sgd(net->parameters(), {.learning_rate = settings.lr});
  const nn::CrossEntropyLoss criterion;
  data::DataLoader loader(data.rows.train, {.batch = settings.batch,
                                            .shuffle = true,
                                            .seed = static_cast<std::uint64_t>(settings.seed),
                                            .device = devices[0],
                                            .row_shape = data.model.row});
  Trained trained;
  const auto begin = std::chrono::steady_clock::now();
  for (int step = 0; step < settings.num_steps;) {
    for (const data::Batch& batch : loader) {
      sgd.zero_grad();
      criterion(wrapped(batch.x), batch.labels).backward();
      sgd.step();
      if (++step == std::min(kComparedSteps, settings.num_steps)) {
        for (const Variable& p : net->parameters()) {
          trained.first_weights.push_back(p.value().clone());
        }
      }
      if (step == settings.num_steps) break;
    }
  }
  tutorial::synchronize(devices[0]);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  trained.seconds = seconds.count();
  trained.accuracy = evaluate_accuracy(*net, data, devices[0]);
  return trained;
}

int steps_of(const Data& data, int epochs) {
  return epochs * ((static_cast<int>(data.rows.train.num_rows()) + batch_size - 1) / batch_size);
}

Trained train_lenet(const Data& data, const std::vector<Device>& devices) {
  const Settings settings{static_cast<int>(devices.size()), batch_size, kLeNetRate,
                          steps_of(data, num_epochs)};
  fmt::print("train(num_devices={}, batch_size={}, lr={}) on {}\n", devices.size(), batch_size,
             settings.lr, dataset);
  const Trained trained = train("lenet", data, settings, devices);
  std::vector<std::string> names;
  for (const Device device : devices) names.push_back(to_string(device));
  fmt::print("test acc: {:.2f}, {:.1f} s/epoch on [{}]\n", trained.accuracy,
             trained.seconds / num_epochs, fmt::join(names, ", "));
  return trained;
}

void train_lenet_twice(const Data& data, const tutorial::Options& options) {
  const Trained one = train_lenet(data, options.devices(1));
  const Trained two = train_lenet(data, options.devices(2));
  const int num_compared = std::min(kComparedSteps, steps_of(data, num_epochs));
  tutorial::check_close(fmt::format("weights of 2 devices and of one after {} steps", num_compared),
                        tutorial::max_abs_difference(one.first_weights, two.first_weights),
                        tutorial::weight_tolerance(num_compared));
}

// --- what the book changes, one thing at a time

struct Cause {
  const char* changed;
  Settings settings;
  std::vector<double> accuracies = {};  // one for each run

  double mean() const {
    return std::accumulate(accuracies.begin(), accuracies.end(), 0.0) / accuracies.size();
  }
  // The standard deviation of the runs; 0 of a single one.
  double spread() const {
    double squares = 0;
    for (const double accuracy : accuracies) squares += std::pow(accuracy - mean(), 2);
    return std::sqrt(squares / std::max<std::size_t>(1, accuracies.size() - 1));
  }
};

// How much more than chance lies between the means: below 2 the runs do not tell them apart.
bool is_told_apart(const Cause& a, const Cause& b) {
  const double chance = std::hypot(a.spread(), b.spread()) / std::sqrt(a.accuracies.size());
  return a.accuracies.size() > 1 && std::abs(a.mean() - b.mean()) > 2 * chance;
}

std::vector<Cause> train_causes(const Data& data, const tutorial::Options& options) {
  const int steps = steps_of(data, kEpochsOfCauses);
  std::vector<Cause> causes{
      {"nothing", {1, batch_size, kRate, steps}},
      {"devices", {2, batch_size, kRate, steps}},
      {"batch (twice the epochs)", {1, 2 * batch_size, kRate, steps}},
      {"learning rate", {1, batch_size, 2 * kRate, steps}},
      {"steps (half the epochs)", {1, batch_size, kRate, steps / 2}},
      {"all, as in the book", {2, 2 * batch_size, 2 * kRate, steps / 2}},
  };
  fmt::print("changed                   devices  batch   lr  steps  test acc   spread\n");
  for (Cause& cause : causes) {
    Settings settings = cause.settings;
    for (settings.seed = 0; settings.seed < num_runs; ++settings.seed) {
      const std::vector<Device> devices = options.devices(settings.num_devices);
      cause.accuracies.push_back(train(kSmallNet, data, settings, devices).accuracy);
    }
    fmt::print("{:<25} {:>7} {:>6} {:>4} {:>6} {:>9.3f} {:>8.3f}\n", cause.changed,
               settings.num_devices, settings.batch, settings.lr, settings.num_steps, cause.mean(),
               cause.spread());
  }
  tutorial::say(fmt::format(
      "test acc: the mean of {} run{}, each from other first weights and with the rows in another "
      "order; spread: their standard deviation",
      num_runs, num_runs == 1 ? "" : "s"));
  return causes;
}

// The cause that alone costs the most.
int worst_of(const std::vector<Cause>& causes) {
  const auto worst =
      std::min_element(causes.begin() + 1, causes.end() - 1,
                       [](const Cause& a, const Cause& b) { return a.mean() < b.mean(); });
  return static_cast<int>(worst - causes.begin());
}

// As much as the runs allow to say: "0.69 instead of 0.85".
std::string compare(const Cause& changed, const Cause& base) {
  return fmt::format("{:.2f}{} {:.2f}", changed.mean(),
                     is_told_apart(changed, base) ? " instead of" : ", not clearly apart from",
                     base.mean());
}

void run(const tutorial::Options& options) {
  const Data data = load_data();
  if (options.fast) num_epochs = std::min(num_epochs, 1);
  guess.ask(options);

  tutorial::step(1, "LeNet on one device and on two: the same batches");
  train_lenet_twice(data, options);

  tutorial::step(2, "twice the batch and the learning rate, one change at a time");
  fmt::print("{}, {} epochs of {} images unless the line says otherwise\n", kSmallNet,
             kEpochsOfCauses, data.rows.train.num_rows());
  const std::vector<Cause> causes = train_causes(data, options);
  const Cause &base = causes.front(), &book = causes.back();
  const int worst = worst_of(causes);
  tutorial::check("two devices alone change nothing",
                  std::abs(causes[1].mean() - base.mean()) < 0.02);
  guess.judge(worst, "which alone gives " + compare(causes[worst], base));

  tutorial::answer(
      fmt::format("With twice the batch each of two GPUs has as many rows as one had (27 shows the "
                  "gain). Two devices alone cost nothing: {:.3f}, as one {:.3f}. Half as many "
                  "steps alone give {}; with twice the rate, as in the book, {}.",
                  causes[1].mean(), base.mean(), compare(causes[4], base), compare(book, base)),
      {{"--batch 32", "Half as many steps in every line: what does the book's way cost now?"},
       {"--runs 1", "One run of each: which of these conclusions would you still draw?"}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  const auto add_flags = [](Flags& flags, Options&) {
    guess.add_flag(flags);
    flags.add_text("--dataset", dataset, "digits, fashion-mnist, mnist or other images");
    flags.add_text("--data-dir", data_dir, "where it was fetched to");
    flags.add_number("--batch", batch_size, 1, 30000, "rows of a step (the book: 256)");
    flags.add_number("--epochs", num_epochs, 1, 1000, "of LeNet");
    flags.add_number("--runs", num_runs, 1, 1000, "of each line of step 2");
  };
  constexpr const char* kQuestion =
      "Why train with twice the batch on two devices, and what does it cost?";
  return run_main(argc, argv, kQuestion, run, {.num_devices = 2, .add_flags = add_flags});
}
