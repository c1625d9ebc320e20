#include "tools/calibration/measurement.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <vector>

#include "engine/autograd/ops/ops.h"
#include "engine/comm/thread_group.h"
#include "engine/tensor/tensor.h"
#include "engine/trace/recorder.h"
#include "tools/report/workload.h"
#include "tools/training/ranks.h"

namespace lockstep::tools {
namespace {

// The number of rows matters most, because a shard has fewer of them than the batch.
constexpr double kMostRows = 4096;
constexpr double kFewestRows = 4;
// Rows of a multiple of 4 KiB fall on the same lines of a first-level cache and take a tenth
// longer; 1016 inputs are as fast as any other number. Powers of two are what people choose.
const std::vector<double> kInputs = {8, 64, 256, 512, 1016, 1024, 2048};
const std::vector<double> kOutputs = {8, 16, 64, 128, 256, 512, 1024, 2048};
// A layer with more multiplications is not timed: its time is scaled from the layer with fewer
// rows.
constexpr double kMostProducts = 3e8;
// Each layer is timed in turn with another one like it that has its own parameters, because a net's
// caches hold about what its two largest layers need.
constexpr std::size_t kLayersOfANet = 2;

// A batch's rows come in random order from a data set that no cache can hold.
constexpr std::size_t kDataSetBytes = std::size_t{64} << 20;
constexpr std::size_t kDataSetRowBytes = 1 << 10;
constexpr double kFewestBatchBytes = 4 << 10;
constexpr double kMostBatchBytes = 16 << 20;

constexpr std::size_t kClasses = 10;
constexpr double kFewestLogits = 40;
constexpr double kMostLogits = 1 << 18;

constexpr double kFewestBytes = 192;
constexpr double kMostBytes = 192 << 20;
constexpr double kTrafficStep = 2;  // the caches' sizes lie between these
constexpr double kBatchStep = 2;
constexpr double kLogitsStep = 4;

struct LayerTime {
  double forward_seconds = 0;
  double backward_seconds = 0;
  double spread = 0;  // of the backward passes: Times::spread
};

// Times a Linear with its activation: the medians for one layer. As in training, the forward pass
// of all layers comes before the backward pass of all, which makes the gradients of weight and
// bias, and of the input if it requires one; then the parameters are updated. So caches hold what
// they hold in training.
LayerTime time_layer(const std::array<double, 3>& shape, RequiresGrad input, Device device) {
  const auto [rows, inputs, outputs] = shape;
  const auto values = [&](double num_rows, double num_columns) {
    return Tensor::full({static_cast<std::size_t>(num_rows), static_cast<std::size_t>(num_columns)},
                        0.01, DType::float32, device);
  };
  // The input is in the cache, like one that the layer before has just computed.
  const Tensor x = values(rows, inputs);
  std::vector<Variable> layer_inputs;
  std::vector<Variable> parameters;  // weight and bias of each layer
  for (std::size_t i = 0; i < kLayersOfANet; ++i) {
    layer_inputs.emplace_back(x, input);
    parameters.emplace_back(values(outputs, inputs), RequiresGrad::yes);
    parameters.emplace_back(
        Tensor::zeros({static_cast<std::size_t>(outputs)}, DType::float32, device),
        RequiresGrad::yes);
  }
  optim::Sgd optimizer = still_optimizer(parameters);
  std::vector<Variable> results(kLayersOfANet);
  Times forward;
  Times backward;
  while (!forward.are_enough() || !backward.are_enough()) {
    forward.add([&] {
      for (std::size_t i = 0; i < kLayersOfANet; ++i) {
        results[i] = linear(layer_inputs[i], parameters[2 * i], parameters[2 * i + 1],
                            kernels::Activation::relu);
      }
    });
    const Tensor grad = Tensor::full(results[0].value().shape(), 1.0, DType::float32, device);
    backward.add([&] {
      for (Variable& result : results) result.backward(grad);
    });
    optimizer.step();
    // A training step does not add to old gradients, so it must not find any.
    optimizer.zero_grad();
    for (Variable& layer_input : layer_inputs) layer_input.clear_grad();
  }
  constexpr double kCount = kLayersOfANet;
  return {forward.median_seconds() / kCount, backward.median_seconds() / kCount, backward.spread()};
}

// y += 2 x: reads both and writes y.
Times time_traffic(double num_bytes, Device device) {
  constexpr double kArrays = 3;
  const auto count = static_cast<std::size_t>(num_bytes / kArrays / sizeof(float));
  const Tensor x = Tensor::full({count}, 1.0, DType::float32, device);
  const Tensor y = Tensor::full({count}, 1.0, DType::float32, device);
  return time_repeatedly([&] { y.backend().axpy(y.stream(), 2, x.view(), y.view()); });
}

// Gathers different rows each time, as training does.
Times time_batch(const Tensor& data_set, std::size_t num_rows) {
  Rng rng(0);
  std::vector<std::int64_t> rows(num_rows);
  Tensor indices;
  const auto draw_rows = [&] {
    for (std::int64_t& row : rows) {
      row = static_cast<std::int64_t>(rng.uniform() * static_cast<double>(data_set.shape()[0]));
    }
    indices = Tensor::from(rows, {num_rows});
  };
  const Tensor batch = Tensor::zeros({num_rows, data_set.shape()[1]});
  return time_repeatedly(draw_rows, [&] {
    batch.backend().gather_rows(batch.stream(), data_set.matrix(), indices.view(), batch.matrix(),
                                1);
  });
}

// The time of a training step besides its kernels, measured with a net so small that its batch
// costs nothing.
double time_loop() {
  TrainingFlags flags;
  flags.dataset = "synthetic:4096x8x2";
  flags.model = "mlp:8-8-2";
  flags.batch = 8;
  TrainingTask task = read_task(flags, 1);
  load_task(task, flags);
  trace::start();
  const TrainingResult result = train(task, {Mode::single, {Device{}}});
  trace::stop();
  const trace::StepBreakdown& step = result.breakdown.value();
  return step.data + step.host + step.unattributed;
}

double geometric_mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += std::log(value);
  return std::exp(sum / static_cast<double>(values.size()));
}

// Times work() on each device while all devices run it; returns the median of several runs.
std::vector<double> time_together(std::size_t num_devices,
                                  const std::function<double(Device)>& work) {
  constexpr int kTimes = 5;
  std::vector<std::vector<double>> times(num_devices);
  comm::run_ranks(static_cast<int>(num_devices), [&](comm::Communicator& communicator) {
    for (int i = 0; i < kTimes; ++i) {
      communicator.barrier().wait();
      const int rank = communicator.rank();
      times[static_cast<std::size_t>(rank)].push_back(work({DeviceType::cpu, rank}));
    }
  });
  std::vector<double> medians;
  for (std::vector<double>& device : times) medians.push_back(median(std::move(device)));
  return medians;
}

}  // namespace

void measure_layers(Measurement& measurement) {
  predict::MeasuredMachine& measured = measurement.machine;
  const double growth = measurement.is_fast ? 32 : 2;
  const std::vector<double> few = {16, 256};
  const std::vector<double>& all_inputs = measurement.is_fast ? few : kInputs;
  const std::vector<double>& all_outputs = measurement.is_fast ? few : kOutputs;
  std::vector<double> rows;
  for (double count = kFewestRows; count <= kMostRows; count *= growth) rows.push_back(count);
  const auto grids = {&measured.forward, &measured.backward, &measured.weights_backward};
  const std::size_t num_layers = all_inputs.size() * all_outputs.size();
  for (predict::LayerGrid* grid : grids) {
    *grid = {{rows, all_inputs, all_outputs}, std::vector<double>(rows.size() * num_layers)};
  }
  // A layer's rows are timed right after each other, because the ratios of their times matter most.
  for (std::size_t layer = 0; layer < num_layers; ++layer) {
    const double inputs = all_inputs[layer / all_outputs.size()];
    const double outputs = all_outputs[layer % all_outputs.size()];
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::size_t at = i * num_layers + layer;
      if (rows[i] * inputs * outputs > kMostProducts) {
        for (predict::LayerGrid* grid : grids) {
          grid->seconds[at] = growth * grid->seconds[at - num_layers];
        }
        continue;
      }
      const LayerTime all = time_layer({rows[i], inputs, outputs}, RequiresGrad::yes, {});
      const LayerTime first = time_layer({rows[i], inputs, outputs}, RequiresGrad::no, {});
      measured.forward.seconds[at] = (all.forward_seconds + first.forward_seconds) / 2;
      measured.backward.seconds[at] = all.backward_seconds;
      measured.weights_backward.seconds[at] = first.backward_seconds;
      measurement.layer_spreads.push_back(all.spread);
    }
  }
}

void measure_traffic(Measurement& measurement) {
  std::vector<predict::Curve>& traffic = measurement.machine.traffic;
  traffic.assign(measurement.num_devices, {});
  const double most = measurement.is_fast ? kMostBytes / 64 : kMostBytes;
  for (double bytes = kFewestBytes; bytes <= most; bytes *= kTrafficStep) {
    const auto work = [&](Device device) { return time_traffic(bytes, device).median_seconds(); };
    for (std::size_t n = 1; n <= measurement.num_devices; ++n) {
      traffic[n - 1].sizes.push_back(bytes);
      traffic[n - 1].seconds.push_back(
          std::max(geometric_mean(time_together(n, work)), n == 1 ? 0 : traffic[0].seconds.back()));
    }
    measurement.copy_spreads.push_back(time_traffic(bytes, {}).spread());
  }
}

void measure_batches(Measurement& measurement) {
  predict::Curve& batches = measurement.machine.batch;
  const double loop = time_loop();
  const Tensor data_set = Tensor::full(
      {kDataSetBytes / kDataSetRowBytes, kDataSetRowBytes / sizeof(float)}, 1.0, DType::float32);
  for (double bytes = kFewestBatchBytes; bytes <= kMostBatchBytes; bytes *= kBatchStep) {
    const Times times = time_batch(data_set, static_cast<std::size_t>(bytes) / kDataSetRowBytes);
    batches.sizes.push_back(bytes);
    batches.seconds.push_back(loop + times.median_seconds());
    measurement.copy_spreads.push_back(times.spread());
  }
}

void measure_losses(Measurement& measurement) {
  predict::MeasuredMachine& measured = measurement.machine;
  for (double count = kFewestLogits; count <= kMostLogits; count *= kLogitsStep) {
    const std::size_t num_rows = static_cast<std::size_t>(count) / kClasses;
    const Variable logits(Tensor::full({num_rows, kClasses}, 0.5), RequiresGrad::yes);
    const Tensor labels = Tensor::from(std::vector<std::int64_t>(num_rows, 1), {num_rows});
    Variable loss;
    const auto forward = [&] { loss = cross_entropy(logits, labels); };
    const double bytes = count * sizeof(float);
    measured.loss_forward.sizes.push_back(bytes);
    measured.loss_forward.seconds.push_back(time_repeatedly(forward).median_seconds());
    measured.loss_backward.sizes.push_back(bytes);
    measured.loss_backward.seconds.push_back(
        time_repeatedly(forward, [&] { loss.backward(); }).median_seconds());
  }
}

void measure_layers_beside(Measurement& measurement) {
  const std::vector<double> widths =
      measurement.is_fast ? std::vector<double>{128} : std::vector<double>{128, 512, 2048};
  measurement.machine.layers_beside = {1};
  for (std::size_t n = 2; n <= measurement.num_devices; ++n) {
    std::vector<double> factors;
    for (const double width : widths) {
      const auto work = [&](Device device) {
        return time_layer({64, width, width}, RequiresGrad::yes, device).backward_seconds;
      };
      factors.push_back(geometric_mean(time_together(n, work)) /
                        geometric_mean(time_together(1, work)));
    }
    measurement.machine.layers_beside.push_back(std::max(1.0, geometric_mean(factors)));
  }
}

}  // namespace lockstep::tools
