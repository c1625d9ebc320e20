// 06: What must several devices do so that together they train one model?
//
// You will see: the four parts of every data-parallel step, by hand, without DataParallel: split
// the batch, compute gradients on each device, add them up (all-reduce), update on each device; and
// that this trains the model that one device would have trained. The functions do what those of the
// same names do in Dive into Deep Learning, "Training on Multiple GPUs".
//
// Run:  06_train_replicas [--device auto|cpu|cuda] [--fast]
//
// Expected output (abridged; times differ):
//   cpu:1: 4 parameter tensors (9610 numbers), x [32, 64]
//   -0.011800 -0.011371   on cpu:0 and cpu:1
//   -0.023171 -0.023171   the sum, on both
//   -0.023171             one device with all 64 rows
//   check: weights on cpu:1 of 2 devices against one device: largest difference 6e-08, ...
//   an epoch takes 1.1 ms, on one device 0.9 ms: speed-up 0.78
//   ── Step 5: the same with a model that computes 119 times as much per step ──
//   an epoch takes 101.7 ms, on one device 109.8 ms: speed-up 1.08

#include <algorithm>
#include <chrono>
#include <limits>

#include "engine/autograd/ops/ops.h"
#include "engine/nn/mlp.h"
#include "engine/optim/sgd.h"
#include "engine/parallel/data_parallel/for_each_device.h"
#include "engine/plan/scatter.h"
#include "tutorials/common.h"
#include "tutorials/rows.h"

namespace {

using namespace lockstep;
using tutorial::Rows;

constexpr const char* kModel = "mlp:64-128-10";  // as in 03
constexpr const char* kWideModel = "mlp:64-1024-1024-10";
constexpr std::uint64_t kSeed = 0;  // of the initial weights: the same wherever a model is made
constexpr std::size_t kBatch = 64;
constexpr double kLearningRate = 0.1;

// One device's copy of the model's parameters: weight and bias of layer 0, then of layer 2.
using Parameters = std::vector<Variable>;

Parameters copy_parameters(const nn::Module& model, Device device) {  // d2l: get_params
  Parameters copies;
  for (const Variable& parameter : model.parameters()) {
    copies.emplace_back(parameter.value().clone().to(device), RequiresGrad::yes);
    copies.back().set_grad(Tensor::zeros(parameter.shape(), parameter.dtype(), device));
  }
  return copies;
}

// What the model's forward() does, with parameters that we hold in our own hands.
Variable forward(const Parameters& p, const Tensor& x) {
  Variable hidden(x);
  for (std::size_t i = 0; i + 2 < p.size(); i += 2) hidden = relu(linear(hidden, p[i], p[i + 1]));
  return linear(hidden, p[p.size() - 2], p[p.size() - 1]);
}

// Each row's loss is divided by the rows of the WHOLE batch: then the gradients of all devices add
// up to the gradient of the mean over the whole batch, whatever the sizes of the shards.
void compute_gradients(const Parameters& parameters, const Rows& shard, std::size_t batch_rows) {
  const Variable loss = cross_entropy(forward(parameters, shard.x), shard.labels, Reduction::sum);
  const double per_row = 1.0 / static_cast<double>(batch_rows);
  loss.backward(Tensor::full(loss.shape(), per_row, loss.dtype(), loss.device()));
}

std::vector<Rows> split_batch(const Rows& batch, const std::vector<Device>& devices) {
  std::vector<Rows> shards;
  const plan::ScatterPlan plan = plan::scatter_plan(batch.count(), devices.size());
  for (const plan::ScatterPart& part : plan.parts) {
    shards.push_back(batch.part(part.offset, part.offset + part.size, devices[part.index]));
  }
  return shards;
}

// Afterwards every device's gradients are the sums over all devices: added up on device 0, and sent
// back from there.
void all_reduce_gradients(const std::vector<Parameters>& replicas) {  // d2l: allreduce
  for (std::size_t p = 0; p < replicas[0].size(); ++p) {
    const Tensor& sum = replicas[0][p].grad();
    for (std::size_t d = 1; d < replicas.size(); ++d) {
      const Tensor arrived = replicas[d][p].grad().to(sum.device());
      sum.backend().add(sum.stream(), sum.view(), arrived.view(), sum.view());
    }
    for (std::size_t d = 1; d < replicas.size(); ++d) replicas[d][p].grad().copy_from(sum);
  }
}

void update(const Parameters& parameters) {  // plain SGD: w = w - lr * gradient; forget the latter
  for (const Variable& p : parameters) {
    p.value().backend().axpy(p.value().stream(), -kLearningRate, p.grad().view(), p.value().view());
    p.grad().fill(0);
  }
}

// The whole of a step. for_each_device calls a function for all devices at the same time, each on
// its device's own thread; it returns when all are done.
void train_batch(const std::vector<Parameters>& replicas, const Rows& batch,
                 const std::vector<Device>& devices) {
  const std::vector<Rows> shards = split_batch(batch, devices);
  parallel::for_each_device(devices, [&](std::size_t d) {
    if (d < shards.size()) compute_gradients(replicas[d], shards[d], batch.count());
  });
  all_reduce_gradients(replicas);
  parallel::for_each_device(devices, [&](std::size_t d) { update(replicas[d]); });
}

// Calls train(batch) for every batch of every epoch; returns the seconds of the fastest epoch.
double run_epochs(const Rows& digits, std::size_t num_epochs,
                  const std::function<void(const Rows&)>& train) {
  double fastest = std::numeric_limits<double>::infinity();
  for (std::size_t epoch = 0; epoch < num_epochs; ++epoch) {
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t step = 0; step < digits.steps_per_epoch(kBatch); ++step) {
      train(digits.batch(step, kBatch));
    }
    digits.x.stream().synchronize();  // a GPU works on after it has been told what to do
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    fastest = std::min(fastest, elapsed.count());
  }
  return fastest;
}

// Trains on one device as in 03, then on several by hand; prints times only of equal results.
void compare(const Rows& digits, const char* name, std::size_t num_epochs,
             const tutorial::Options& options) {
  const auto one = nn::make_mlp(name, kSeed);
  one->to(digits.x.device());
  optim::Sgd sgd(one->parameters(), {.learning_rate = kLearningRate});
  const double one_seconds = run_epochs(digits, num_epochs, [&](const Rows& batch) {
    sgd.zero_grad();
    cross_entropy((*one)(Variable(batch.x)), batch.labels).backward();
    sgd.step();
  });
  const std::size_t num_steps = num_epochs * digits.steps_per_epoch(kBatch);
  for (const std::size_t num_devices : {2u, 4u}) {
    const std::vector<Device> devices = options.devices(num_devices);
    const auto model = nn::make_mlp(name, kSeed);
    std::vector<Parameters> replicas;
    for (const Device device : devices) replicas.push_back(copy_parameters(*model, device));
    const double seconds = run_epochs(
        digits, num_epochs, [&](const Rows& batch) { train_batch(replicas, batch, devices); });
    for (std::size_t d : {std::size_t{0}, num_devices - 1}) {
      const auto trained = nn::make_mlp(name, kSeed);
      trained->set_parameters(replicas[d]);
      tutorial::check_close(fmt::format("weights on {} of {} devices against one device",
                                        to_string(devices[d]), num_devices),
                            tutorial::max_abs_difference(*trained, *one),
                            tutorial::weight_tolerance(num_steps));
    }
    fmt::print("an epoch takes {:.1f} ms, on one device {:.1f} ms: speed-up {:.2f}\n",
               1e3 * seconds, 1e3 * one_seconds, one_seconds / seconds);
    tutorial::note_sharing(devices);
  }
}

void run(const tutorial::Options& options) {
  const std::vector<Device> two = options.devices(2);
  const Rows digits = tutorial::load_digits(two[0]);
  const auto model = nn::make_mlp(kModel, kSeed);
  const auto shown = [](const Parameters& p) { return p.back().grad().to_vector<double>()[0]; };

  tutorial::step(1, "a copy of the parameters for each device, and a shard of the batch");
  const std::vector<Parameters> replicas = {copy_parameters(*model, two[0]),
                                            copy_parameters(*model, two[1])};
  const std::vector<Rows> shards = split_batch(digits.batch(0, kBatch), two);
  for (std::size_t d = 0; d < 2; ++d) {
    fmt::print("{}: {} parameter tensors ({} numbers), x {}\n", to_string(two[d]),
               replicas[d].size(), model->num_parameters(), to_string(shards[d].x.shape()));
  }

  tutorial::step(2, "each device computes the gradient of its rows");
  const Parameters one = copy_parameters(*model, two[0]);
  compute_gradients(one, digits.batch(0, kBatch), kBatch);
  for (std::size_t d = 0; d < 2; ++d) compute_gradients(replicas[d], shards[d], kBatch);
  fmt::print("the gradient of one parameter, the output bias of digit 0:\n");
  fmt::print("  {:+.6f} {:+.6f}   on {} and {}\n", shown(replicas[0]), shown(replicas[1]),
             to_string(two[0]), to_string(two[1]));

  tutorial::step(3, "all-reduce: add up on device 0, send the sum back");
  all_reduce_gradients(replicas);
  fmt::print("  {:+.6f} {:+.6f}   the sum, on both\n", shown(replicas[0]), shown(replicas[1]));
  fmt::print("  {:+.6f}             one device with all 64 rows\n", shown(one));

  tutorial::step(4, "train: every device makes the same update, so the copies stay equal");
  compare(digits, kModel, options.fast ? 2 : 20, options);
  fmt::print("A step of this small model is about as short as telling the devices to begin.\n");
  tutorial::step(5, "the same with a model that computes 119 times as much per step");
  compare(digits, kWideModel, options.fast ? 1 : 5, options);
}

}  // namespace

int main(int argc, char** argv) {
  constexpr const char* kQuestion = "What must several devices do to train one model together?";
  return lockstep::tutorial::run_main(argc, argv, kQuestion, run, {.num_devices = 4});
}
