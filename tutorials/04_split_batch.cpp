// 04: What does DataParallel do between one batch and one output?
//
// One batch, several devices, one output: the rows must go to the devices, and so must the model,
// since each device can compute only with what is in its own memory. The outputs must come back.
// These are DataParallel's four stages, and backward is each of them in reverse.
//
// You will see: its four stages, one at a time: scatter cuts 30 rows into 10/10/10, replicate puts
// a copy of the model on every device, parallel_apply runs all copies at the same time, gather puts
// the outputs together. Then backward, the same way in reverse, which sums the copies' gradients;
// and DataParallel itself: what every copy gets ("In Model") next to the whole ("Outside").
//
// Run:  04_split_batch [--devices 3] [--rows 30] [--device auto|cpu|cuda] [--fast]
//
// Expected output with --fast: tutorials/expected/04.txt

#include <lockstep.h>

#include <memory>
#include <vector>

#include "engine/autograd/node.h"
#include "engine/parallel/data_parallel/steps.h"
#include "tutorials/common.h"

namespace {

using namespace lockstep;

int num_devices = 3;  // --devices
int num_rows = 30;    // --rows

// The model of PyTorch's data parallelism tutorial: one layer that prints what it is given.
class Model final : public nn::ModuleOf<Model> {
 public:
  Model() { register_child("fc", fc); }

  Variable forward(const Variable& input) override {
    const Variable output = fc(input);
    fmt::print("\tIn Model: input size {} output size {} on {}\n",
               lockstep::to_string(input.shape()), lockstep::to_string(output.shape()),
               lockstep::to_string(output.device()));
    return output;
  }

  nn::Linear fc{5, 2};
};

// With the same weights whenever it is called.
std::shared_ptr<Model> make_model(Device device) {
  manual_seed(0);
  const auto model = std::make_shared<Model>();
  model->to(device);
  return model;
}

Variable loss_of(const Variable& output) {
  return mse_loss(output, Tensor::zeros_like(output.value()));
}

void print_gradient(std::string_view when, const Tensor& grad) {
  fmt::print("  bias gradient {:<18} {:>10.6f} {:>10.6f}\n", when, grad[0], grad[1]);
}

std::vector<Variable> show_scatter(const Tensor& batch, const std::vector<Device>& devices) {
  tutorial::step(1, "scatter (nn.parallel.scatter): cut the batch along its rows");
  fmt::print("{}", plan::to_string(plan::scatter_plan(batch.size(0), devices.size())));
  const std::vector<Variable> shards = parallel::scatter(Variable(batch), devices);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    fmt::print("  shard {}: {}, {}\n", i, describe(shards[i].value()),
               shards[i].value().storage() == batch.storage() ? "a view of the batch" : "a copy");
  }
  tutorial::say(
      "[0, 10) means rows 0 to 9. Each shard has ceil(rows / devices) rows, so the last one may be "
      "smaller, and the last devices may get none: then they are not used.");
  return shards;
}

std::vector<std::shared_ptr<nn::Module>> show_replicate(const Model& model,
                                                        const std::vector<Device>& devices) {
  tutorial::step(2, "replicate (nn.parallel.replicate): a copy of the model per device");
  const auto replicas = parallel::replicate(model, devices);
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    const Variable weight = replicas[i]->parameters()[0];
    const bool is_own = weight.value().shares_memory_with(model.fc.weight().value());
    fmt::print("  replica {}: weight {}, {}, by {}\n", i, describe(weight.value()),
               is_own ? "the model's" : "a copy", weight.node()->name());
  }
  tutorial::say(
      "A replica has no weights of its own. Its weight is the output of an operation, Broadcast, "
      "on the model's weight. So backward() carries its gradient back to the model (step 5), the "
      "optimizer only knows the model, and the replicas are thrown away after each step.");
  return replicas;
}

// Backward goes the same way in reverse: gather's gradient is a scatter, the replicas run backward
// at the same time, and replicate's gradient is a sum over the replicas, on the first device.
void show_backward(const Model& model, const Variable& output, const Tensor& batch) {
  tutorial::step(5, "loss.backward(): the replicas' gradients add up on device 0");
  loss_of(output).backward();

  // A replica's part of the sum: the gradient of its rows alone, weighted by their share.
  const Tensor sum = Tensor::zeros_like(model.fc.bias().value());
  for (const auto& part : plan::scatter_plan(num_rows, num_devices).parts) {
    const auto alone = make_model(batch.device());
    const std::size_t end = part.offset + part.size;
    const Variable loss = loss_of(alone->fc(batch.rows(part.offset, end)));
    scale(loss, 1.0 * part.size / num_rows).backward();
    const Tensor grad = alone->fc.bias().grad();
    print_gradient(fmt::format("from rows [{}, {})", part.offset, end), grad);
    sum += grad;
  }
  print_gradient("their sum", sum);
  print_gradient("after backward", model.fc.bias().grad());
  tutorial::check_close("the bias gradient is the sum over the replicas", model.fc.bias().grad(),
                        sum, 1e-6);
}

// The four stages, each with what it made. nn.DataParallel(model, device_ids) calls them one after
// the other.
void show_stages(const Tensor& batch, const std::vector<Device>& devices) {
  const auto model = make_model(devices[0]);
  const std::vector<Variable> shards = show_scatter(batch, devices);
  const std::vector<Device> used(devices.begin(), devices.begin() + std::ssize(shards));
  const auto replicas = show_replicate(*model, used);

  tutorial::step(3, "parallel_apply: every replica on its shard, at the same time");
  const std::vector<Variable> outputs = parallel::parallel_apply(replicas, shards);

  tutorial::step(4, "gather: one output on the output_device, the first of device_ids");
  const Variable output = parallel::gather(outputs, devices[0]);
  fmt::print("Outside: input size {} output_size {} on {}\n", to_string(batch.shape()),
             to_string(output.shape()), to_string(output.device()));

  show_backward(*model, output, batch);
}

// DataParallel's output and gradients for a batch. With one device it is a plain call of the model:
// the others are compared with that.
std::vector<Tensor> run_on(const Tensor& batch, const std::vector<Device>& devices) {
  parallel::DataParallel net(make_model(devices[0]), {.devices = devices});
  const Variable output = net(batch);
  fmt::print("Outside: input size {} output_size {}\n", to_string(batch.shape()),
             to_string(output.shape()));
  loss_of(output).backward();
  std::vector<Tensor> results = {output.value()};
  for (const Variable& parameter : net.parameters()) results.push_back(parameter.grad());
  return results;
}

void run(const tutorial::Options& options) {
  Rng rng(1);
  const std::size_t rows = num_rows;
  const Tensor batch = Tensor::normal({rows, 5}, 0, 1, rng, DType::float32, options.device());
  show_stages(batch, options.devices(num_devices));

  tutorial::step(6, "DataParallel itself: let's use 1 device");
  const std::vector<Tensor> single = run_on(batch, options.devices(1));
  double largest = 0;
  for (const int count : {3, 8}) {
    tutorial::step(count == 3 ? 7 : 8, fmt::format("let's use {} devices", count));
    const std::vector<Tensor> results = run_on(batch, options.devices(count));
    const double difference = tutorial::max_abs_difference(results, single);
    tutorial::check_close("same output and gradients as one device", difference, 1e-6);
    largest = std::max(largest, difference);
  }

  std::vector<std::size_t> sizes;
  for (const auto& part : plan::scatter_plan(num_rows, num_devices).parts) {
    sizes.push_back(part.size);
  }
  tutorial::answer(
      fmt::format("It scatters {} rows as {}, replicates the model, applies the copies at the same "
                  "time and gathers one output; backward() sums the copies' gradients. Outputs and "
                  "gradients are those of one device, within {:.0e} (rounding).",
                  num_rows, fmt::join(sizes, "/"), largest),
      {{"--devices 4 --rows 10", "3/3/3/1: the last device has the least to do."},
       {"--devices 8 --rows 10", "Five devices have 2 rows each, and three are idle."}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  const auto add_flags = [](Flags& flags, Options&) {
    flags.add_number("--devices", num_devices, 1, 8, "for the steps 1 to 5");
    flags.add_number("--rows", num_rows, 1, 1000, "of the batch");
  };
  return run_main(argc, argv, "What does DataParallel do between one batch and one output?", run,
                  {.num_devices = 8, .add_flags = add_flags});
}
