// 03: What does it take to train a model on one device?
//
// You will see: 1,500 handwritten digits (8x8 pixels) and a network of two layers; the loop of
// forward, loss, backward and optimizer step; loss and test accuracy after every epoch; the
// weights by name (PyTorch's state_dict), saved to a file and loaded into another model, which
// then predicts the same. Every later tutorial splits this loop over devices and must end with
// the same weights.
//
// Run:  03_train_model [--batch 64] [--lr 0.1] [--save FILE] [--device auto|cpu|cuda] [--fast]
//
// Expected output (abridged):
//   Sequential(
//     (0): Linear(in_features=64, out_features=128, bias=True)
//     (2): Linear(in_features=128, out_features=10, bias=True)
//   9610 parameters on cpu:0
//   epoch  1  loss 1.7055  test accuracy 81.5 %
//   epoch  5  loss 0.0862  test accuracy 90.2 %
//   check: more than 85 % of the unseen digits are recognised ... ok
//   0.weight  Tensor[128, 64] float32 on cpu:0
//   test accuracy of the new model:  18.9 %
//   after loading the saved weights: 90.2 %
//   check: both models give the same outputs: largest difference 0, tolerance 0 ... ok

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

#include "datasets/digits.h"
#include "engine/autograd/variable.h"
#include "engine/data/data_loader.h"
#include "engine/nn/loss.h"
#include "engine/nn/mlp.h"
#include "engine/nn/state_dict.h"
#include "engine/optim/optimizer.h"
#include "tutorials/common.h"

namespace {

using namespace lockstep;

constexpr const char* kModel = "mlp:64-128-10";  // Linear(64, 128), ReLU, Linear(128, 10)
constexpr std::uint64_t kSeed = 0;

// What the flags of this tutorial say.
struct Choices {
  std::size_t batch = 64;
  double learning_rate = 0.1;
  std::string save_path;
};

struct Course {
  double first_loss = 0, last_loss = 0;  // means over the first and the last epoch
  std::size_t num_steps = 0;
};

// The first 1,500 digits train, the other 297 test: a model is judged by rows it has not seen.
std::shared_ptr<const data::LabelledRows> load_rows(std::size_t begin, std::size_t end) {
  return std::make_shared<data::LabelledRows>(datasets::load_digits(begin, end));
}

// All rows of a data set as one batch on a device.
data::Batch load_all(const std::shared_ptr<const data::LabelledRows>& rows, Device device) {
  data::SamplerOptions options;
  options.num_samples = options.batch_size = rows->num_rows();
  options.shuffle = data::Shuffle::off;
  data::DataLoader loader(
      rows, [options](std::uint64_t epoch) { return data::exact_batches(options, epoch); },
      {.device = device});
  return *loader.next();
}

// The fraction of rows whose largest output is that of the right class.
double measure_accuracy(nn::Module& model, const data::Batch& batch) {
  const NoGradScope no_grad;  // nothing to learn from these rows
  const std::vector<float> logits = model(Variable(batch.x)).value().to_vector<float>();
  const std::vector<std::int64_t> labels = batch.labels.to_vector<std::int64_t>();
  const std::size_t num_classes = logits.size() / labels.size();
  std::size_t num_correct = 0;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(row * num_classes);
    const auto end = begin + static_cast<std::ptrdiff_t>(num_classes);
    num_correct += std::max_element(begin, end) - begin == labels[row];
  }
  return static_cast<double>(num_correct) / static_cast<double>(labels.size());
}

// The training loop. The loss says how wrong the outputs are: the mean of -log(the right one).
Course train(nn::Module& model, std::size_t num_epochs, const Choices& choices,
             const data::Batch& test) {
  const auto rows = load_rows(0, datasets::kNumTrainDigits);
  data::SamplerOptions sampling;
  sampling.num_samples = rows->num_rows();
  sampling.batch_size = choices.batch;
  sampling.seed = kSeed;  // each epoch shuffles the rows by seed + epoch
  data::DataLoader loader(
      rows, [sampling](std::uint64_t epoch) { return data::exact_batches(sampling, epoch); },
      {.device = test.x.device()});
  optim::Sgd optimizer(model.parameters(),
                       {.learning_rate = choices.learning_rate, .momentum = 0.9});
  const nn::CrossEntropyLoss criterion;

  Course course;
  for (std::size_t epoch = 0; epoch < num_epochs; ++epoch) {
    double loss_sum = 0;
    loader.start_epoch(epoch);
    while (const std::optional<data::Batch> batch = loader.next()) {
      optimizer.zero_grad();                              // gradients add up: forget the last
      const Variable logits = model(Variable(batch->x));  // forward: [batch, 64] -> [batch, 10]
      const Variable loss = criterion(logits, batch->labels);  // mean over the batch's rows
      loss.backward();                                         // a gradient for every parameter
      optimizer.step();                                        // w = w - lr * (momentum of) grad
      ++course.num_steps;
      loss_sum += loss.value().item() * static_cast<double>(batch->x.size(0));
    }
    course.last_loss = loss_sum / static_cast<double>(rows->num_rows());
    if (epoch == 0) course.first_loss = course.last_loss;
    fmt::print("epoch {:>2}  loss {:.4f}  test accuracy {:.1f} %\n", epoch + 1, course.last_loss,
               100 * measure_accuracy(model, test));
  }
  return course;
}

// Where the weights go: a temporary file unless the user named one.
std::filesystem::path weights_path(const std::string& save_path) {
  if (!save_path.empty()) return save_path;
  return std::filesystem::temp_directory_path() / fmt::format("03.{}.safetensors", ::getpid());
}

void run(const tutorial::Options& options, const Choices& choices) {
  const Device device = options.device();

  tutorial::step(1, "the data and the model");
  const data::Batch test =
      load_all(load_rows(datasets::kNumTrainDigits, datasets::kNumDigits), device);
  fmt::print("digits: {} rows to train on, {} to test; test batch {}\n", datasets::kNumTrainDigits,
             test.x.size(0), describe(test.x));
  const std::shared_ptr<nn::Sequential> model = nn::make_mlp(kModel, kSeed);
  model->to(device);
  fmt::print("{}\n{} parameters on {}\n", model->to_string(), model->num_parameters(),
             to_string(model->parameters()[0].device()));
  fmt::print("test accuracy before training: {:.1f} % (guessing: 10 %)\n",
             100 * measure_accuracy(*model, test));

  tutorial::step(2, "train: an epoch is once through all rows, a step one batch of them");
  const Course course = train(*model, options.fast ? 5 : 20, choices, test);
  const double accuracy = measure_accuracy(*model, test);
  const bool is_usual = choices.batch == 64 && choices.learning_rate == 0.1;
  tutorial::check(fmt::format("the loss is less than {} of the first epoch's",
                              is_usual ? "a tenth" : "nine tenths"),
                  course.last_loss < course.first_loss * (is_usual ? 0.1 : 0.9));
  tutorial::check(
      fmt::format("more than {} % of the unseen digits are recognised", is_usual ? 85 : 50),
      accuracy > (is_usual ? 0.85 : 0.5));

  tutorial::step(3, "save the weights by name");
  for (const auto& [name, tensor] : nn::state_dict(*model)) {
    fmt::print("  {:<9} {}\n", name, describe(tensor));
  }
  const std::filesystem::path path = weights_path(choices.save_path);
  nn::save_weights(path, *model);
  fmt::print("saved {} bytes in safetensors form, which Python reads too\n",
             std::filesystem::file_size(path));

  tutorial::step(4, "load them into another model");
  const std::shared_ptr<nn::Sequential> loaded = nn::make_mlp(kModel, kSeed + 2);
  loaded->to(device);
  fmt::print("test accuracy of the new model:  {:.1f} %\n", 100 * measure_accuracy(*loaded, test));
  nn::load_state_dict(*loaded, nn::load_weights(path));
  if (choices.save_path.empty()) std::filesystem::remove(path);
  fmt::print("after loading the saved weights: {:.1f} %\n", 100 * measure_accuracy(*loaded, test));
  tutorial::check_close("both models give the same outputs",
                        tutorial::max_abs_difference((*model)(Variable(test.x)).value(),
                                                     (*loaded)(Variable(test.x)).value()),
                        0);
  tutorial::answer(
      fmt::format("Four lines, again and again: forward, loss, backward, step. After {} steps with "
                  "{} rows each the loss fell from {:.2f} to {:.2f}, and {:.1f} % of 297 digits "
                  "that the model had never seen are read rightly.",
                  course.num_steps, choices.batch, course.first_loss, course.last_loss,
                  100 * accuracy),
      {{"--batch 512", "8 times the rows, an eighth of the steps: an epoch now teaches less."},
       {"--lr 0.01", "Shorter steps: the loss falls more slowly, and more smoothly."}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  Choices choices;
  const auto add_flags = [&](Flags& flags, Options&) {
    flags.add_number("--batch", choices.batch, 1, 1500, "rows per step");
    flags.add_number("--lr", choices.learning_rate, 1e-4, 0.5, "learning rate");
    flags.add_text("--save", choices.save_path, "keep the weights in this file (safetensors)");
  };
  return run_main(argc, argv, "What does it take to train a model on one device?",
                  [&](const Options& options) { run(options, choices); }, {.add_flags = add_flags});
}
