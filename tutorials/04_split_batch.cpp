// 04: What does DataParallel do between one batch and one output?
//
// You will see: its four stages, one at a time: scatter cuts 30 rows into 10/10/10, replicate puts
// a copy of the model on every device, parallel_apply runs all copies at the same time, gather puts
// the outputs together. Then backward, the same way in reverse, which sums the copies' gradients;
// and DataParallel itself: what every copy gets ("In Model") next to the whole ("Outside").
//
// Run:  04_split_batch [--devices 3] [--rows 30] [--device auto|cpu|cuda] [--fast]
//
// Expected output (abridged; replicas run at the same time, so their lines may swap):
//   shard 1: Tensor[10, 5] float32 on cpu:1, a copy
//       In Model: input size [10, 5] output size [10, 2] on cpu:2
//   Outside: input size [30, 5] output_size [30, 2] on cpu:0
//   bias gradient from rows [0, 10)   -0.024547   0.009834
//   bias gradient after backward      -0.065863   0.220707
//   ── Step 9: let's use 8 devices ──
//       In Model: input size [2, 5] output size [2, 2] on cpu:7
//   Outside: input size [30, 5] output_size [30, 2]
//   check: same output and gradients as one device: largest difference 6e-08, tolerance 1e-06 ...

#include <memory>
#include <vector>

#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "engine/nn/layers.h"
#include "engine/parallel/data_parallel/data_parallel.h"
#include "engine/parallel/data_parallel/stages.h"
#include "tutorials/common.h"

namespace {

using namespace lockstep;

// The model of PyTorch's data parallelism tutorial: one layer that prints what it is given.
class Model final : public nn::ModuleOf<Model> {
 public:
  explicit Model(Rng& rng) {
    register_child("fc", std::make_shared<nn::Linear>(/*in=*/5, /*out=*/2, rng));
  }
  Variable forward(const Variable& input) override {
    const Variable output = (*children()[0].second)(input);
    fmt::print("\tIn Model: input size {} output size {} on {}\n",
               lockstep::to_string(input.shape()), lockstep::to_string(output.shape()),
               lockstep::to_string(output.device()));
    return output;
  }
  std::string type_name() const override { return "Model"; }
};

std::shared_ptr<Model> make_model(Device device) {
  Rng rng(0);
  auto model = std::make_shared<Model>(rng);
  model->to(device);
  return model;
}

Variable loss_of(const Variable& output) {
  return mse_loss(output, Tensor::zeros(output.shape(), output.dtype(), output.device()));
}

void print_values(std::string_view what, const Tensor& pair) {
  const std::vector<double> values = pair.to_vector<double>();
  fmt::print("  bias gradient {:<18} {:>10.6f} {:>10.6f}\n", what, values[0], values[1]);
}

// Backward goes the same way in reverse: gather's gradient is a scatter, the replicas run backward
// at the same time, and replicate's gradient is a sum over the replicas, on the first device.
void show_backward(const Model& model, const Variable& output, const Tensor& batch,
                   const plan::ScatterPlan& plan) {
  tutorial::step(5, "loss.backward(): the replicas' gradients are summed on the first device");
  loss_of(output).backward();
  const Tensor found = model.parameters()[1].grad();  // of the bias [2]

  // What each replica contributed: the gradient of its rows alone, as a share of the whole loss.
  Tensor sum = Tensor::zeros(found.shape(), found.dtype(), found.device());
  for (const plan::ScatterPart& part : plan.parts) {
    const std::shared_ptr<Model> alone = make_model(batch.device());
    nn::Module& layer = *alone->children()[0].second;  // the layer inside prints nothing
    const Variable rows(batch.rows(part.offset, part.offset + part.size));
    const double share = static_cast<double>(part.size) / static_cast<double>(plan.num_rows);
    scale(loss_of(layer(rows)), share).backward();
    const Variable grad(alone->parameters()[1].grad());
    const std::size_t end = part.offset + part.size;
    print_values(fmt::format("from rows [{}, {})", part.offset, end), grad.value());
    sum = add(Variable(sum), grad).value();
  }
  print_values("their sum", sum);
  print_values("after backward", found);
  tutorial::check_close("the bias gradient is the sum over the replicas",
                        tutorial::max_abs_difference(found, sum), 1e-6);
}

// The four stages, each with what it made. In PyTorch: nn.parallel.scatter, replicate,
// parallel_apply and gather; nn.DataParallel(model, device_ids) calls them one after the other.
void show_stages(const Tensor& batch, const std::vector<Device>& devices) {
  const std::shared_ptr<Model> model = make_model(devices[0]);
  const Variable input(batch);

  tutorial::step(1, "scatter (nn.parallel.scatter): cut the batch along its rows");
  const plan::ScatterPlan plan = plan::scatter_plan(batch.size(0), devices.size());
  fmt::print("{}", plan::to_string(plan));
  const std::vector<Variable> shards = parallel::scatter(input, devices);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    fmt::print("  shard {}: {}, {}\n", i, describe(shards[i].value()),
               shards[i].value().storage() == batch.storage() ? "a view of the batch" : "a copy");
  }
  fmt::print(
      "[0, 10) means rows 0 to 9. Each shard has ceil(rows / devices) rows, so the last one may "
      "be\n"
      "smaller, and the last devices may get none: then they are not used.\n");
  tutorial::step(2, "replicate (nn.parallel.replicate): one copy of the model per device");
  const std::vector<Device> used(devices.begin(), devices.begin() + std::ssize(shards));
  const auto replicas = parallel::replicate(*model, used);
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    const Variable weight = replicas[i]->parameters()[0];
    const bool is_own = weight.value().shares_memory_with(model->parameters()[0].value());
    fmt::print("  replica {} weight {}: {}, node {}\n", i, describe(weight.value()),
               is_own ? "the model's own" : "a copy", weight.node()->name());
  }
  fmt::print(
      "A node is an operation that backward() goes through (02): Broadcast made the copies, so\n"
      "gradients find their way back to the model.\n");
  tutorial::step(3, "parallel_apply: every replica on its shard, at the same time");
  const std::vector<Variable> outputs = parallel::parallel_apply(replicas, shards);
  tutorial::step(4, "gather: one output on the output_device, the first of device_ids");
  const Variable output = parallel::gather(outputs, devices[0]);
  fmt::print("Outside: input size {} output_size {} on {}\n", to_string(input.shape()),
             to_string(output.shape()), to_string(output.device()));
  show_backward(*model, output, batch, plan);
}

// What nn.DataParallel makes of a batch: the output, and the gradients of all parameters. On one
// device the model is called as it is: that is what the others are compared with.
std::vector<Tensor> run_on(const Tensor& batch, const std::vector<Device>& devices) {
  parallel::DataParallel net(make_model(devices[0]), {.devices = devices});
  const Variable output = net(Variable(batch));
  fmt::print("Outside: input size {} output_size {}\n", to_string(batch.shape()),
             to_string(output.shape()));
  loss_of(output).backward();
  std::vector<Tensor> results = {output.value()};
  for (const Variable& parameter : net.parameters()) results.push_back(parameter.grad());
  return results;
}

// Two batches: one of all rows but the last ten, and these. Returns the largest difference.
double compare_counts(const Tensor& rows, const tutorial::Options& options) {
  const std::size_t cut = rows.size(0) - 10;
  const Tensor batches[] = {rows.rows(0, cut), rows.rows(cut, cut + 10)};
  std::vector<std::vector<Tensor>> single;
  double largest = 0;
  int number = 6;
  for (const std::size_t count : {1, 2, 3, 8}) {
    tutorial::step(number++, fmt::format("let's use {} device{}", count, count == 1 ? "" : "s"));
    for (std::size_t i = 0; i < 2; ++i) {
      const std::vector<Tensor> results = run_on(batches[i], options.devices(count));
      if (count == 1) single.push_back(results);
      if (count == 1) continue;
      const double difference = tutorial::max_abs_difference(results, single[i]);
      tutorial::check_close("same output and gradients as one device", difference, 1e-6);
      largest = std::max(largest, difference);
    }
  }
  return largest;
}

void run(const tutorial::Options& options, std::size_t num_devices, std::size_t num_rows) {
  Rng rng(1);
  const Shape shape = {num_rows + 10, 5};
  const Tensor rows = Tensor::normal(shape, 0, 1, rng, DType::float32, options.device());
  show_stages(rows.rows(0, num_rows), options.devices(num_devices));
  const double largest = compare_counts(rows, options);
  std::vector<std::size_t> sizes;
  for (const auto& part : plan::scatter_plan(num_rows, num_devices).parts)
    sizes.push_back(part.size);
  tutorial::answer(
      fmt::format("It scatters {} rows as {}, replicates the model, applies the copies at the same "
                  "time, gathers one output; backward() sums the copies' gradients. The result is "
                  "one device's: outputs and gradients differ by at most {:.0e} (rounding).",
                  num_rows, fmt::join(sizes, "/"), largest),
      {{"--devices 4 --rows 10", "3/3/3/1: the last device has the least to do."},
       {"--devices 8 --rows 10", "Five devices have 2 rows each, and three are idle."}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  std::size_t num_devices = 3, num_rows = 30;
  const auto add_flags = [&](Flags& flags, Options&) {
    flags.add_number("--devices", num_devices, 1, 8, "for the steps 1 to 5");
    flags.add_number("--rows", num_rows, 1, 1000, "of the batch");
  };
  return run_main(argc, argv, "What does DataParallel do between one batch and one output?",
                  [&](const Options& options) { run(options, num_devices, num_rows); },
                  {.num_devices = 8, .add_flags = add_flags});
}
