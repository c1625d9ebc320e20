// 03: What does it take to train a model on one device?
//
// Four calls make a training step: compute the loss, compute its gradients, change each weight a
// little against its gradient, and forget the gradients. Everything that several devices do later
// must give what this loop gives, so it is the measure for all of them.
//
// You will see: 1,500 handwritten digits (8x8 pixels) and a network of two layers; the loop of
// forward, loss, backward and optimizer step; loss and test accuracy after every epoch; the
// weights by name (PyTorch's state_dict), saved to a file and loaded into another model, which
// then predicts the same. Tutorials 06 and 10 train this model by this loop on several devices:
// compare the files (diff 03_train_model.cpp 06_train_replicas.cpp).
//
// Run:  03_train_model [--batch 64] [--lr 0.1] [--save FILE] [--device auto|cpu|cuda] [--fast]
//
// Expected output with --fast: tutorials/expected/03.txt

#include <lockstep.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "tutorials/common.h"

namespace {

using namespace lockstep;

constexpr const char* kModel = "mlp:64-128-10";  // Linear(64, 128), ReLU, Linear(128, 10)

int batch_size = 64;         // --batch: rows of a step
double learning_rate = 0.1;  // --lr

std::string save_path;  // --save

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

// The training loop. Returns the mean loss of each epoch.
std::vector<double> train(const std::shared_ptr<nn::Module>& model, Device device, int epochs) {
  data::DataLoader loader(datasets::load_digits(0, datasets::kNumTrainDigits),
                          {.batch = batch_size, .shuffle = true, .device = device});
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
      optimizer.step();
      loss_sum += loss.item() * batch.labels.size(0);
    }
    losses.push_back(loss_sum / datasets::kNumTrainDigits);
    report(epoch, losses.back(), *model);
  }
  return losses;
}

// Saves the weights by name, loads them into a model that has never trained, and compares outputs.
void save_and_load(nn::Module& model, Device device) {
  const data::LabelledTensors test = datasets::load_digits().test;
  tutorial::step(3, "save the weights by name");
  for (const auto& [name, tensor] : nn::state_dict(model)) {
    fmt::print("  {:<9} {}\n", name, describe(tensor));
  }
  std::filesystem::path path = save_path;
  if (path.empty()) {
    path = std::filesystem::temp_directory_path() / fmt::format("03.{}.safetensors", ::getpid());
  }
  nn::save_weights(path, model);
  fmt::print("saved {} bytes as safetensors, which Python reads too\n",
             std::filesystem::file_size(path));

  tutorial::step(4, "load them into another model");
  const auto other = make_model(device, /*seed=*/2);
  fmt::print("test accuracy of the new model:  {:.1f} %\n", 100 * nn::accuracy(*other, test));
  nn::load_state_dict(*other, nn::load_weights(path));
  if (save_path.empty()) std::filesystem::remove(path);
  fmt::print("after loading the saved weights: {:.1f} %\n", 100 * nn::accuracy(*other, test));
  const Tensor x = test.x.to(device);
  tutorial::check_close("both models give the same outputs", model(x).value(), (*other)(x).value(),
                        0);
}

void run(const tutorial::Options& options) {
  const Device device = options.device();
  const data::LabelledTensors test = datasets::load_digits().test;

  tutorial::step(1, "the data and the model");
  fmt::print("digits: {} rows to train on, {} to test\ntest batch {}\n", datasets::kNumTrainDigits,
             test.num_rows(), describe(test.x));
  const auto model = make_model(device);
  fmt::print("{}\n{} parameters on {}\n", model->to_string(), model->num_parameters(),
             to_string(model->parameters()[0].device()));
  fmt::print("test accuracy before training: {:.1f} % (guessing: 10 %)\n",
             100 * nn::accuracy(*model, test));

  tutorial::step(2, "train: an epoch is one pass over all rows, a step uses one batch");
  const std::vector<double> losses = train(model, device, options.fast ? 5 : 20);
  const double accuracy = nn::accuracy(*model, test);
  if (batch_size == 64 && learning_rate == 0.1) {
    tutorial::check("the loss is less than a tenth of the first epoch's",
                    losses.back() < losses.front() / 10);
    tutorial::check("more than 85 % of the unseen digits are recognised", accuracy > 0.85);
  }

  save_and_load(*model, device);
  tutorial::answer(
      fmt::format("Four lines, again and again: forward, loss, backward, step. In {} epochs of "
                  "batches of {} rows the loss fell from {:.2f} to {:.2f}, and the model "
                  "recognises {:.1f} % of 297 digits that it had never seen.",
                  losses.size(), batch_size, losses.front(), losses.back(), 100 * accuracy),
      {{"--batch 512",
        "8 times the rows, an eighth of the steps: the model learns less per epoch."},
       {"--lr 0.01", "Shorter steps: the loss falls more slowly, and more smoothly."}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  const auto add_flags = [](Flags& flags, Options&) {
    flags.add_number("--batch", batch_size, 1, 1500, "rows per step");
    flags.add_number("--lr", learning_rate, 1e-4, 0.5, "learning rate");
    flags.add_text("--save", save_path, "keep the weights in this file (safetensors)");
  };
  return run_main(argc, argv, "What does it take to train a model on one device?", run,
                  {.add_flags = add_flags});
}
