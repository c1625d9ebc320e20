// 28: What does batch norm do when the batch is on several devices?
//
// Batch norm subtracts the mean of the batch and divides by its deviation, so what a row becomes
// depends on the rows beside it. On several devices each sees its own rows only: other means, other
// results, another training than on one device. It also keeps running statistics of all batches,
// for later, when there is no batch; each replica's follow its own rows.
//
// You will see: a batch norm of six numbers on one device, then three on each of two. Then a small
// ResNet trained on digits in four ways: on one device, by DataParallel and by DDP, whose batch
// norms take the rows of their own device (PyTorch's default), and by DDP with synchronised
// statistics (PyTorch's SyncBatchNorm), which ends as one device does. Batch norm amplifies
// rounding, so that even two equal runs drift apart if one starts one bit off: that run is the
// measure here, as in `lockstep compare`. Last, what running statistics are for, and which
// replica's are saved.
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

// --- running statistics

constexpr int kNormBatches = 50;  // after which the running statistics have settled

// The numbers after their batch norm, each in five columns.
std::string normalised(nn::Module& norm, const std::vector<float>& numbers, Device device) {
  std::string text;
  const Tensor y = norm(Tensor::from(numbers, {numbers.size(), 1}, device)).value();
  for (const float value : y.to_vector<float>()) text += fmt::format(" {:5.2f}", value);
  return text;
}

// Shows the batch norm kNormBatches batches, always the same.
void pass_batches(nn::Module& norm, const Tensor& x) {
  for (int i = 0; i < kNormBatches; ++i) sum(norm(x)).backward();
}

void evaluate_alone(Device device) {
  nn::BatchNorm1d norm(1, {.device = device});
  pass_batches(norm, Tensor::from(std::vector<float>{0, 1, 2, 3, 4, 5}, {6, 1}, device));
  fmt::print("after {} batches of 0 1 2 3 4 5: running mean {:.1f}, variance {:.1f}\n",
             kNormBatches, norm.buffers()[0][0], norm.buffers()[1][0]);
  fmt::print("evaluated       by the batch's statistics   by the running ones\n");
  nn::BatchNorm1d copy(1, {.device = device});
  nn::load_state_dict(copy, nn::state_dict(norm));
  norm.eval();
  const std::string alone = normalised(norm, {5}, device);
  fmt::print("5, beside 4     {:>25} {:>21}\n", normalised(copy, {4, 5}, device),
             normalised(norm, {4, 5}, device));
  fmt::print("5, beside 9     {:>25} {:>21}\n", normalised(copy, {5, 9}, device),
             normalised(norm, {5, 9}, device));
  fmt::print("5, alone        {:>25} {:>21}\n", "an error", alone);
  const std::string error = tutorial::show_error([&] { normalised(copy, {5}, device); });
  tutorial::check("alone or beside others, the running statistics make the same of 5",
                  normalised(norm, {4, 5}, device).ends_with(alone) &&
                      normalised(norm, {5, 9}, device).starts_with(alone) && !error.empty());
}

// What two ranks' batch norms know in the end, and make of 5.
struct Running {
  double mean[2];
  std::string five[2];
};

Running pass_on_two(const std::vector<Device>& devices, BatchNormRows rows,
                    parallel::DdpOptions::Buffers buffers) {
  Running running;
  tutorial::on_ranks({devices[0], devices[1]}, [&](comm::Communicator& ranks, int rank,
                                                   Device device) {
    const auto norm = std::make_shared<nn::BatchNorm1d>(1, nn::BatchNormOptions{.device = device});
    if (rows == BatchNormRows::all) parallel::sync_batch_norm(*norm, ranks);
    parallel::DdpOptions options;
    options.buffers = buffers;
    parallel::Ddp ddp(norm, ranks, options);
    const float first = 3.0f * static_cast<float>(rank);
    pass_batches(ddp,
                 Tensor::from(std::vector<float>{first, first + 1, first + 2}, {3, 1}, device));
    norm->eval();
    running.mean[rank] = norm->buffers()[0][0];
    running.five[rank] = normalised(*norm, {5}, device);
  });
  return running;
}

void show_running(const std::vector<Device>& devices) {
  using Buffers = parallel::DdpOptions::Buffers;
  tutorial::step(3, "running statistics: for a row without a batch");
  evaluate_alone(devices[0]);

  tutorial::step(4, "whose running statistics are saved?");
  const Running own = pass_on_two(devices, BatchNormRows::own, Buffers::keep);
  const Running from_0 = pass_on_two(devices, BatchNormRows::own, Buffers::broadcast);
  const Running all = pass_on_two(devices, BatchNormRows::all, Buffers::broadcast);
  fmt::print(
      "rank 0 sees 0 1 2, rank 1 3 4 5     running mean on rank     5 becomes on rank\n"
      "                                          0        1           0        1\n");
  const auto print = [](const char* name, const Running& running) {
    fmt::print("{:<34} {:>8.2f} {:>8.2f} {:>11} {:>8}\n", name, running.mean[0], running.mean[1],
               running.five[0], running.five[1]);
  };
  print("own rows, kept by each rank", own);
  print("own rows, rank 0's for all (Ddp)", from_0);
  print("shared", all);
  tutorial::say(
      "Ddp sends rank 0's to all before each forward pass, so rank 1 is one batch away from them. "
      "A "
      "checkpoint holds rank 0's: those of 0 1 2 alone, unless statistics are shared.");
  tutorial::check(
      "with own rows the ranks evaluate differently, with shared ones alike",
      own.five[0] != own.five[1] && from_0.five[0] == own.five[0] && all.five[0] == all.five[1]);
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
  show_running(options.devices(2));
  const std::string shared = fmt::format(
      "With shared statistics only rounding is left: {:.1g}. What is saved are rank 0's running "
      "statistics.",
      all);
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
