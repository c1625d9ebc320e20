// Can Dive into Deep Learning's two-device training be written by hand on this engine?
//
// The book's section "Training on Multiple GPUs" trains from scratch with get_params, allreduce,
// split_batch, train_batch and train. The functions here have the same names and do the same, on
// Fashion-MNIST, with an MLP in place of LeNet (26_double_batch trains LeNet).
//
// Run:  train_devices --data-dir data        Fashion-MNIST, from `datasets/fetch.sh fashion-mnist`
//       train_devices                        without a download: the digits
//       [--devices 2] [--batch 256] [--lr 0.2] [--epochs 10] [--device auto|cpu|cuda] [--fast]
//
// docs/from-the-texts.md shows what it prints.

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "datasets/dataset.h"
#include "engine/autograd/ops/ops.h"
#include "engine/autograd/variable.h"
#include "engine/data/labelled_rows.h"
#include "engine/data/sampler.h"
#include "engine/nn/loss.h"
#include "engine/nn/models.h"
#include "engine/parallel/data_parallel/steps.h"
#include "engine/plan/scatter.h"
#include "tutorials/common.h"

namespace {

using namespace lockstep;
using data::LabelledTensors;
using Parameters = std::vector<Variable>;  // weight, bias, weight, bias, on one device

struct Settings {
  int num_devices = 2;
  int batch_size = 256;
  int num_epochs = 10;
  double lr = 0.2;
  std::string data_dir;  // empty: the digits
};

struct Datasets {
  std::string name;
  LabelledTensors train, test;  // on cpu:0
};

Datasets load_data(const std::string& data_dir) {
  const std::string name = data_dir.empty() ? "digits" : "fashion-mnist";
  const auto rows = datasets::load_dataset(datasets::parse_dataset(name), data_dir, /*seed=*/0);
  return {name, data::to_tensors(rows.train), data::to_tensors(rows.test)};
}

Parameters get_params(const nn::Module& initial, Device device) {
  Parameters params;
  for (const Variable& parameter : initial.parameters()) {
    params.emplace_back(parameter.value().clone().to(device), RequiresGrad::yes);
  }
  return params;
}

// x [rows, features] -> logits [rows, classes]; in the book it is lenet(X, params).
Variable net(const Variable& x, const Parameters& params) {
  const Variable hidden = relu(linear(x, params[0], params[1]));
  return linear(hidden, params[2], params[3]);
}

// All devices' tensors become their sum: added up on the first device, sent back from there.
void allreduce(const std::vector<Tensor>& data) {
  const Tensor& sum = data[0];
  for (std::size_t d = 1; d < data.size(); ++d) {
    sum += data[d].to(sum.device());
  }
  for (std::size_t d = 1; d < data.size(); ++d) data[d].copy_from(sum);
}

// 256 rows on 2 devices: 128 each. A batch with fewer rows than devices has fewer shards.
std::vector<LabelledTensors> split_batch(const LabelledTensors& batch,
                                         const std::vector<Device>& devices) {
  std::vector<LabelledTensors> shards;
  for (const plan::ScatterPart& part : plan::scatter_plan(batch.num_rows(), devices.size()).parts) {
    const Device device = devices[shards.size()];
    const std::size_t end = part.offset + part.size;
    shards.push_back({batch.x.rows(part.offset, end).to(device),
                      batch.labels.rows(part.offset, end).to(device)});
  }
  return shards;
}

// w = w - lr * gradient / batch_size; the gradients are sums over the rows of the whole batch.
void sgd(const Parameters& params, double lr, std::size_t batch_size) {
  for (const Variable& param : params) param.add_(param.grad(), -lr / batch_size);
}

void train_batch(const LabelledTensors& batch, const std::vector<Parameters>& device_params,
                 const std::vector<Device>& devices, double lr) {
  const std::vector<LabelledTensors> shards = split_batch(batch, devices);
  parallel::for_each_device(devices, [&](std::size_t d) {
    for (Variable param : device_params[d]) {
      param.set_grad(Tensor::zeros_like(param.value()));
    }
    if (d >= shards.size()) return;  // without rows its gradients are zeros
    const Variable logits = net(Variable(shards[d].x), device_params[d]);
    cross_entropy(logits, shards[d].labels, Reduction::sum).backward();
  });
  for (std::size_t p = 0; p < device_params[0].size(); ++p) {
    std::vector<Tensor> grads;
    for (const Parameters& params : device_params) grads.push_back(params[p].grad());
    allreduce(grads);
  }
  parallel::for_each_device(devices, [&](std::size_t d) {
    sgd(device_params[d], lr, batch.num_rows());
    tutorial::synchronize(devices[d]);  // d2l: torch.cuda.synchronize()
  });
}

double evaluate_accuracy(const LabelledTensors& test, const Parameters& params) {
  const NoGradScope no_grad;
  const Device device = params[0].device();
  const Tensor logits = net(Variable(test.x.to(device)), params).value();
  return 1.0 * nn::count_correct(logits, test.labels.to(device)) / test.num_rows();
}

// Later than this, rounding that training amplifies says more about the weights than a mistake
// does.
constexpr int kComparedSteps = 20;

struct Trained {
  std::vector<Tensor> first_weights;  // after kComparedSteps steps, or as many as there were
  double accuracy = 0;                // at the end
  int num_steps = 0;
};

Trained train(const Datasets& data, const Settings& settings, const std::vector<Device>& devices) {
  fmt::print("train(num_devices={}, batch_size={}, lr={}) on {}\n", devices.size(),
             settings.batch_size, settings.lr, data.name);
  const auto initial = nn::make_mlp(fmt::format("mlp:{}-256-10", data.train.x.size(1)), /*seed=*/0);
  std::vector<Parameters> device_params;
  for (const Device device : devices) device_params.push_back(get_params(*initial, device));
  Trained trained;
  const auto begin = std::chrono::steady_clock::now();
  for (int epoch = 0; epoch < settings.num_epochs; ++epoch) {
    data::SamplerOptions sampling;
    sampling.num_samples = data.train.num_rows();
    sampling.batch_size = settings.batch_size;
    for (const data::BatchShard& batch : data::exact_batches(sampling, epoch)) {
      train_batch(data.train.take(batch.rows, Device{}), device_params, devices, settings.lr);
      if (++trained.num_steps > kComparedSteps) continue;
      trained.first_weights.clear();
      for (const Variable& p : device_params[0]) trained.first_weights.push_back(p.value().clone());
    }
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  trained.accuracy = evaluate_accuracy(data.test, device_params[0]);
  std::vector<std::string> names;
  for (const Device device : devices) names.push_back(to_string(device));
  fmt::print("test acc: {:.2f}, {:.3f} sec/epoch on [{}]\n", trained.accuracy,
             seconds.count() / settings.num_epochs, fmt::join(names, ", "));
  return trained;
}

void run(const tutorial::Options& options, const Settings& settings) {
  const Datasets data = load_data(settings.data_dir);
  const Trained one = train(data, settings, options.devices(1));
  const std::vector<Device> devices = options.devices(settings.num_devices);
  const Trained several = train(data, settings, devices);
  const int num_compared = std::min(kComparedSteps, one.num_steps);
  const double difference = tutorial::max_abs_difference(one.first_weights, several.first_weights);
  tutorial::check_close(
      fmt::format("weights of {} devices and of one after {} steps", devices.size(), num_compared),
      difference, tutorial::weight_tolerance(num_compared));
  tutorial::check("test accuracies differ by less than 0.02",
                  std::abs(one.accuracy - several.accuracy) < 0.02);
  tutorial::answer(
      fmt::format("Yes, with the book's five functions: {} devices have the weights of one after "
                  "{} steps (within {:.0e}), and end with a test accuracy of {:.2f}; one device "
                  "has {:.2f}.",
                  devices.size(), num_compared, difference, several.accuracy, one.accuracy),
      {{"--devices 4", "Four shards of a batch, the same weights."},
       {"--batch 1500", "All digits in one step: ten steps learn less."}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  Settings settings;
  const auto add_flags = [&](Flags& flags, Options& options) {
    flags.add_text("--data-dir", settings.data_dir, "where Fashion-MNIST lies (none: digits)");
    flags.add_number("--devices", options.num_devices, 1, 16, "that share each batch");
    flags.add_number("--batch", settings.batch_size, 1, 60000, "rows per step over all devices");
    flags.add_number("--epochs", settings.num_epochs, 1, 1000, "passes over the data");
    flags.add_number("--lr", settings.lr, 1e-6, 100.0, "learning rate");
  };
  return run_main(argc, argv,
                  "Can Dive into Deep Learning's two-device training be written by hand here?",
                  [&](const Options& options) {
                    settings.num_devices = options.num_devices;
                    if (options.fast) settings.num_epochs = std::min(settings.num_epochs, 4);
                    run(options, settings);
                  },
                  {.num_devices = 2, .add_flags = add_flags});
}
