// 21: What does batch norm do when the batch is on several devices?
//
// You will see: a batch norm of six numbers on one device, then three on each of two: other means,
// other results. Then a small ResNet trained on digits in four ways: on one device, by DataParallel
// and by DDP, whose batch norms take the rows of their own device (PyTorch's default), and by DDP
// with synchronised statistics (PyTorch's SyncBatchNorm), which ends as one device does.
//
// Run:  21_share_statistics [--devices 4] [--batch 64] [--device auto|cpu|cuda] [--fast]
//
// Expected output with --fast: tutorials/expected/21.txt

#include <lockstep.h>

#include <string>
#include <vector>

#include "engine/parallel/sync_batch_norm.h"
#include "tutorials/common.h"

namespace {

using namespace lockstep;
using parallel::BatchNormRows;

constexpr const char* kModel = "resnet18:4";  // 4 channels in its first stage
const nn::ModelData kDigits = {.row = {8, 8, 1}, .num_classes = 10};

int num_devices = 4;  // --devices
int batch_size = 64;  // --batch

std::shared_ptr<nn::Module> make_model(Device device) {
  return nn::make_model(kModel, kDigits, /*seed=*/0, DType::float32, device);
}

// --- six numbers

void print_norm(std::string_view who, const Tensor& x, const Tensor& y) {
  std::string inputs;
  std::string outputs;
  double total = 0;
  for (const float value : x.to_vector<float>()) {
    inputs += fmt::format("{:.0f} ", value);
    total += value;
  }
  for (const float value : y.to_vector<float>()) outputs += fmt::format(" {:5.2f}", value);
  fmt::print("{:<13} {:<13} mean {:.1f}   -> {}\n", who, inputs, total / x.num_elements(), outputs);
}

void show_six_numbers(const std::vector<Device>& devices) {
  tutorial::step(1, "six numbers, whole and in two halves");
  const Tensor x = Tensor::from(std::vector<float>{0, 1, 2, 3, 4, 5}, {6, 1});
  nn::BatchNorm1d whole(1);
  const Tensor expected = whole(x).value();
  print_norm("one device", x, expected);
  for (const BatchNormRows rows : {BatchNormRows::own, BatchNormRows::all}) {
    fmt::print("{}\n", rows == BatchNormRows::own ? "each device uses its own rows:"
                                                  : "all devices share their statistics:");
    std::vector<Tensor> inputs(2);
    std::vector<Tensor> outputs(2);
    tutorial::on_ranks({devices[0], devices[1]},
                       [&](comm::Communicator& ranks, int rank, Device device) {
                         nn::BatchNorm1d half(1, {.device = device});
                         if (rows == BatchNormRows::all) parallel::sync_batch_norm(half, ranks);
                         inputs[rank] = x.rows(3 * rank, 3 * rank + 3).to(device);
                         outputs[rank] = half(inputs[rank]).value();
                       });
    for (int rank = 0; rank < 2; ++rank) {
      print_norm(fmt::format("device {}", rank), inputs[rank], outputs[rank]);
    }
    const double difference =
        std::max(tutorial::max_abs_difference(outputs[0], expected.rows(0, 3)),
                 tutorial::max_abs_difference(outputs[1], expected.rows(3, 6)));
    if (rows == BatchNormRows::all) {
      tutorial::check_close("with shared statistics both get what one device gets", difference,
                            1e-6);
    } else {
      tutorial::check("with statistics of their own rows the results differ", difference > 0.1);
    }
  }
}

// --- a ResNet, four times

struct Trained {
  std::shared_ptr<nn::Module> model;
  std::vector<Tensor> parameters, buffers;
};

Trained trained(const std::shared_ptr<nn::Module>& model) {
  Trained result{model, {}, model->buffers()};
  for (const Variable& parameter : model->parameters())
    result.parameters.push_back(parameter.value());
  return result;
}

// Trains `model`, whose forward pass is `wrapped`'s, on this rank's rows.
void train(nn::Module& model, nn::Module& wrapped, Device device, int rank, int world_size,
           int num_steps) {
  data::DataLoader loader(datasets::load_digits(0, datasets::kNumTrainDigits),
                          {.batch = batch_size,
                           .shuffle = true,
                           .rank = rank,
                           .world_size = world_size,
                           .device = device,
                           .row_shape = {8, 8, 1}});
  optim::Sgd optimizer(model.parameters(), {.learning_rate = 0.05});
  const nn::CrossEntropyLoss criterion;
  for (int step = 0; step < num_steps;) {
    for (const data::Batch& batch : loader) {
      if (batch.num_global_rows < static_cast<std::size_t>(batch_size)) break;  // uneven shards
      optimizer.zero_grad();
      criterion(wrapped(batch.x), batch.labels).backward();
      optimizer.step();
      if (++step == num_steps) break;
    }
  }
}

Trained train_one(Device device, int num_steps) {
  const auto model = make_model(device);
  train(*model, *model, device, 0, 1, num_steps);
  return trained(model);
}

Trained train_data_parallel(const std::vector<Device>& devices, int num_steps) {
  const auto model = make_model(devices[0]);
  parallel::DataParallel wrapped(model, {.devices = devices});
  train(*model, wrapped, devices[0], 0, 1, num_steps);
  return trained(model);
}

Trained train_ddp(const std::vector<Device>& devices, BatchNormRows rows, int num_steps) {
  Trained result;
  tutorial::on_ranks(devices, [&](comm::Communicator& ranks, int rank, Device device) {
    const auto model = make_model(device);
    if (rows == BatchNormRows::all) parallel::sync_batch_norm(*model, ranks);
    parallel::Ddp wrapped(model, ranks);
    train(*model, wrapped, device, rank, ranks.world_size(), num_steps);
    if (rank == 0) result = trained(model);
  });
  return result;
}

// Prints how far a run ended from one device's; returns the difference of the weights.
double compare(std::string_view name, const Trained& run, const Trained& one) {
  const double weights = tutorial::max_abs_difference(run.parameters, one.parameters);
  fmt::print("  {:<26} {:>10.1g} {:>12.1g}\n", name, weights,
             tutorial::max_abs_difference(run.buffers, one.buffers));
  return weights;
}

void run(const tutorial::Options& options) {
  const std::vector<Device> devices = options.devices(num_devices);
  show_six_numbers(options.devices(2));

  const int num_steps = options.fast ? 5 : 20;
  tutorial::step(2, fmt::format("a ResNet on digits, {} steps of {} rows on {} devices", num_steps,
                                batch_size, num_devices));
  const Trained one = train_one(devices[0], num_steps);
  fmt::print("{} parameters; {} batch norms, each with a running mean and variance\n",
             one.model->num_parameters(), one.buffers.size() / 3);
  fmt::print("  differs from one device by    weights   statistics\n");
  const double replicas =
      compare("DataParallel, own rows", train_data_parallel(devices, num_steps), one);
  const double own =
      compare("DDP, own rows", train_ddp(devices, BatchNormRows::own, num_steps), one);
  const double all = compare("DDP, shared", train_ddp(devices, BatchNormRows::all, num_steps), one);
  if (num_devices > 1) {
    tutorial::check("without sharing, the weights differ from one device's",
                    replicas > 1e-3 && own > 1e-3);
    tutorial::check("shared statistics are a hundred times closer", 100 * all < own);
  }
  tutorial::check_close("with shared statistics the weights are one device's", all, 1e-3);
  tutorial::answer(
      fmt::format(
          "By default each device normalises by its own {} rows, so {} devices end with other "
          "weights than one (by {:.1g} after {} steps). Shared statistics cost two small "
          "collectives a layer and give one device's result (within {:.1g}).",
          batch_size / num_devices, num_devices, own, num_steps, all),
      {{"--batch 256", "More rows per device: their statistics come closer to the batch's."},
       {"--devices 8", "Fewer rows per device: their statistics differ more."}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  const auto add_flags = [](Flags& flags, Options& options) {
    options.num_devices = 8;
    flags.add_number("--devices", num_devices, 1, 8, "how many devices");
    flags.add_number("--batch", batch_size, 16, 1024, "rows per step over all devices");
  };
  return run_main(argc, argv, "What does batch norm do when the batch is on several devices?", run,
                  {.num_devices = 4, .add_flags = add_flags});
}
