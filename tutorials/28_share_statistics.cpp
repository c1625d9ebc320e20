// 28: What does batch norm do when the batch is on several devices?
//
// You will see: a batch norm of six numbers on one device, then three on each of two: other means,
// other results. Then a small ResNet trained on digits in four ways: on one device, by DataParallel
// and by DDP, whose batch norms take the rows of their own device (PyTorch's default), and by DDP
// with synchronised statistics (PyTorch's SyncBatchNorm), which ends as one device does. Batch norm
// amplifies rounding, so that even two equal runs drift apart if one starts one bit off: that run
// is the measure here, as in `lockstep compare`.
//
// Run:  28_share_statistics [--devices 4] [--batch 64] [--device auto|cpu|cuda] [--fast]
//
// Expected output with --fast: tutorials/expected/28.txt

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

constexpr DType kType = DType::float64;  // with float32, rounding grows to 1e-3 and more
constexpr double kOneBit = 0x1p-52;      // relative to a float64 number

int num_devices = 4;  // --devices
int batch_size = 64;  // --batch

std::shared_ptr<nn::Module> make_model(Device device) {
  return nn::make_model(kModel, kDigits, /*seed=*/0, kType, device);
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

// --- a ResNet, five times

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
                           .dtype = kType,
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

// The same from weights that differ in their last bit: how far rounding alone takes a run.
Trained train_one_bit_off(Device device, int num_steps) {
  const auto model = make_model(device);
  for (const Variable& parameter : model->parameters()) {
    std::vector<double> values = parameter.value().to_vector<double>();
    for (double& value : values) value *= 1 + kOneBit;
    parameter.value().copy_from(Tensor::from(values, parameter.shape(), device));
  }
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
  fmt::print("  {:<26} {:>10.2g} {:>12.2g}\n", name, weights,
             tutorial::max_abs_difference(run.buffers, one.buffers));
  return weights;
}

void run(const tutorial::Options& options) {
  const std::vector<Device> devices = options.devices(num_devices);
  require(batch_size % num_devices == 0, ErrorCode::Usage, "--batch",
          "expected a multiple of {} devices, found {} rows", num_devices, batch_size);
  show_six_numbers(options.devices(2));

  const int num_steps = options.fast ? 5 : 10;
  tutorial::step(2, fmt::format("a ResNet on digits, {} steps of {} rows on {} device{}", num_steps,
                                batch_size, num_devices, num_devices == 1 ? "" : "s"));
  const Trained one = train_one(devices[0], num_steps);
  fmt::print("{} parameters in {}; {} batch norms, each with a running mean and\nvariance\n",
             one.model->num_parameters(), to_string(kType), one.buffers.size() / 3);
  fmt::print("  differs from one device by    weights   statistics\n");
  const double rounding =
      compare("one device, one bit off", train_one_bit_off(devices[0], num_steps), one);
  const double replicas =
      compare("DataParallel, own rows", train_data_parallel(devices, num_steps), one);
  const double own =
      compare("DDP, own rows", train_ddp(devices, BatchNormRows::own, num_steps), one);
  const double all = compare("DDP, shared", train_ddp(devices, BatchNormRows::all, num_steps), one);
  tutorial::say(
      "One bit off: one device again, whose first weights differ in their last bit. Training "
      "amplifies that difference as it amplifies any rounding, so it is the measure for the rest.");
  if (num_devices > 1) {
    tutorial::check("without sharing, the weights differ by more than 10,000 times that",
                    std::min(replicas, own) > 1e4 * rounding);
  }
  tutorial::check("with shared statistics they differ by less than 100 times that",
                  all < 100 * rounding);
  const std::string shared =
      fmt::format("With shared statistics only rounding is left: {:.1g}.", all);
  tutorial::answer(
      num_devices == 1
          ? "One device has all rows, so there is nothing to share. " + shared
          : fmt::format("By default each of {} devices normalises by its own {} rows, and training "
                        "ends with other weights than on one, by {:.2g} after {} steps. {}",
                        num_devices, batch_size / num_devices, own, num_steps, shared),
      {{"--batch 256", "more rows per device: do the statistics come closer to one device's?"},
       {"--devices 8", "fewer rows per device: what becomes of them?"}});
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
