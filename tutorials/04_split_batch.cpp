// 04: What does DataParallel do between one batch and one output?
//
// You will see: its four stages, one at a time: scatter cuts 30 rows into 10/10/10, replicate puts
// a copy of the model on every device, parallel_apply runs all copies at the same time, gather puts
// the outputs together. Then backward, which goes the same way in reverse and sums the gradients of
// all copies; and the sizes that every copy gets ("In Model") next to the whole ("Outside") for
// 1, 2, 3 and 8 devices, always with one device's results.
//
// Run:  04_split_batch [--device auto|cpu|cuda] [--fast]
//
// Expected output (abridged; replicas run at the same time, so their lines may swap):
//   shard 0: Tensor[10, 5] float32 on cpu:0, a view of the batch
//   shard 1: Tensor[10, 5] float32 on cpu:1, a copy
//   replica 1 weight Tensor[2, 5] float32 on cpu:1: a copy, node Broadcast
//       In Model: input size [10, 5] output size [10, 2] on cpu:0
//       In Model: input size [10, 5] output size [10, 2] on cpu:1
//       In Model: input size [10, 5] output size [10, 2] on cpu:2
//   Outside: input size [30, 5] output_size [30, 2] on cpu:0
//   bias gradient from rows [0, 10)   -0.024547   0.009834
//   bias gradient their sum           -0.065863   0.220707
//   bias gradient after backward      -0.065863   0.220707
//   ── Step 9: 8 devices ──
//       In Model: input size [4, 5] output size [4, 2] on cpu:0
//       In Model: input size [2, 5] output size [2, 2] on cpu:7
//   Outside: input size [30, 5] output_size [30, 2]
//   check: same output and gradients as one device: largest difference 6e-08, tolerance 1e-06 ...

#include <memory>
#include <vector>

#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "engine/nn/linear.h"
#include "engine/parallel/data_parallel/gather.h"
#include "engine/parallel/data_parallel/parallel_apply.h"
#include "engine/parallel/data_parallel/replicate.h"
#include "engine/parallel/data_parallel/scatter.h"
#include "tutorials/common.h"

namespace {

using namespace lockstep;

// The model of PyTorch's data parallelism tutorial: one layer that prints what it is given.
class Model final : public nn::ModuleOf<Model> {
 public:
  Model(std::size_t input_size, std::size_t output_size, Rng& rng) {
    register_child("fc", std::make_shared<nn::Linear>(input_size, output_size, rng));
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
  auto model = std::make_shared<Model>(5, 2, rng);
  model->to(device);
  return model;
}

// The mean of all squared outputs: any function of the whole output would do.
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
  tutorial::step(5, "backward: the replicas' gradients are summed on the first device");
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
    const Tensor grad = alone->parameters()[1].grad();
    print_values(fmt::format("from rows [{}, {})", part.offset, part.offset + part.size), grad);
    sum = add(Variable(sum), Variable(grad)).value();
  }
  print_values("their sum", sum);
  print_values("after backward", found);
  tutorial::check_close("the bias gradient is the sum over the replicas",
                        tutorial::max_abs_difference(found, sum), 1e-6);
}

// The four stages, each with what it made. In PyTorch: nn.parallel.scatter, replicate,
// parallel_apply and gather; nn.DataParallel calls them one after the other.
void show_stages(const Tensor& batch, const std::vector<Device>& devices) {
  const std::shared_ptr<Model> model = make_model(devices[0]);
  const Variable input(batch);

  tutorial::step(1, "scatter: cut the batch");
  const plan::ScatterPlan plan = plan::scatter_plan(batch.size(0), devices.size());
  fmt::print("{}", plan::to_string(plan));
  const std::vector<Variable> shards = parallel::scatter(input, devices);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const bool is_view = shards[i].value().storage() == batch.storage();
    fmt::print("  shard {}: {}, {}\n", i, describe(shards[i].value()),
               is_view ? "a view of the batch" : "a copy");
  }
  fmt::print("A chunk has ceil(rows / devices) rows, so the last devices may get none:\n{}",
             plan::to_string(plan::scatter_plan(10, 8)));

  tutorial::step(2, "replicate: one copy of the model per device");
  const auto replicas = parallel::replicate(*model, devices);
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    const Variable weight = replicas[i]->parameters()[0];
    const bool is_shared = weight.value().shares_memory_with(model->parameters()[0].value());
    fmt::print("  replica {} weight {}: {}, node {}\n", i, describe(weight.value()),
               is_shared ? "the model's own memory" : "a copy",
               weight.node() ? weight.node()->name() : "none");
  }
  fmt::print("The copies are results of an operation, so backward() finds its way to the model.\n");

  tutorial::step(3, "parallel_apply: every replica on its shard, at the same time");
  const std::vector<Variable> outputs = parallel::parallel_apply(replicas, shards);

  tutorial::step(4, "gather: one output on the first device");
  const Variable output = parallel::gather(outputs, devices[0]);
  fmt::print("Outside: input size {} output_size {} on {}\n", to_string(input.shape()),
             to_string(output.shape()), to_string(output.device()));
  show_backward(*model, output, batch, plan);
}

Variable apply(const Model& model, const Tensor& batch, const std::vector<Device>& devices) {
  const std::vector<Variable> shards = parallel::scatter(Variable(batch), devices);
  std::vector<Device> used;  // devices that got rows; the others need no replica
  for (const Variable& shard : shards) used.push_back(shard.device());
  const auto replicas = parallel::replicate(model, used);
  return parallel::gather(parallel::parallel_apply(replicas, shards), devices[0]);
}

// The output of a batch and the gradients of all parameters. On one device the model is called as
// it is: that is what the others are compared with.
std::vector<Tensor> run_on(const Tensor& batch, const std::vector<Device>& devices) {
  const std::shared_ptr<Model> model = make_model(devices[0]);
  const Variable output =
      devices.size() == 1 ? (*model)(Variable(batch)) : apply(*model, batch, devices);
  fmt::print("Outside: input size {} output_size {}\n", to_string(batch.shape()),
             to_string(output.shape()));
  loss_of(output).backward();
  std::vector<Tensor> results = {output.value()};
  for (const Variable& parameter : model->parameters()) results.push_back(parameter.grad());
  return results;
}

// A data set of 40 rows makes a batch of 30 and one of the 10 that are left.
void compare_counts(const Tensor& rows, const tutorial::Options& options) {
  const std::vector<Tensor> batches = {rows.rows(0, 30), rows.rows(30, 40)};
  std::vector<std::vector<Tensor>> single;
  int number = 6;
  for (const std::size_t count : {1, 2, 3, 8}) {
    tutorial::step(number++, fmt::format("{} {}", count, count == 1 ? "device" : "devices"));
    for (std::size_t i = 0; i < batches.size(); ++i) {
      const std::vector<Tensor> results = run_on(batches[i], options.devices(count));
      if (count == 1) single.push_back(results);
      if (count == 1) continue;
      tutorial::check_close("same output and gradients as one device",
                            tutorial::max_abs_difference(results, single[i]), 1e-6);
    }
  }
}

void run(const tutorial::Options& options) {
  Rng rng(1);
  const Tensor rows = Tensor::normal({40, 5}, 0, 1, rng, DType::float32, options.device());
  show_stages(rows.rows(0, 30), options.devices(3));
  compare_counts(rows, options);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::tutorial::run_main(argc, argv,
                                      "What does DataParallel do between one batch and one output?",
                                      run, {.num_devices = 8});
}
