// 24: How can several devices train a model that fits on none of them?
//
// Under DDP every rank keeps the parameters, their gradients and the optimizer's state: all of it,
// as often as there are ranks. So a model that does not fit on one device does not fit on eight
// either. ZeRO cuts up what is kept, in three depths; the third is PyTorch's FSDP.
//
// You will see: which part of each layer a rank owns; the bytes that each of four ranks keeps with
// DDP and at each depth, measured by the memory pool of its device, beside the formula, and what a
// step sends; the same weights each time, to the bit; then devices with half the memory that DDP
// needs: DDP runs out of it, ZeRO trains; and where a parameter is between two steps: nowhere.
//
// Run:  24_shard_state [--ranks 4] [--layers 8] [--device auto|cpu|cuda] [--fast]
//
// Expected output with --fast: tutorials/expected/24.txt

#include <fmt/ranges.h>
#include <lockstep.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/trace/counters.h"
#include "tutorials/common.h"

namespace {

using namespace lockstep;
using parallel::ShardDepth;
using parallel::Sharded;

constexpr int kRows = 8;  // each rank's
constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

int num_ranks = 0;
int num_layers = 8;  // --layers

struct Depth {
  const char* name;
  std::optional<ShardDepth> shard;  // none: DDP
};
const std::vector<Depth> kDepths = {{"ddp", {}},
                                    {"optimizer", ShardDepth::optimizer},
                                    {"gradients", ShardDepth::gradients},
                                    {"parameters", ShardDepth::parameters}};

// Layers of 128 x 128 numbers, biases included, with the same weights on every rank.
std::shared_ptr<nn::Module> make_model(Device device) {
  std::string sizes = "mlp:127";
  for (int i = 0; i < num_layers; ++i) sizes += i % 2 == 0 ? "-128" : "-127";
  return nn::make_mlp(sizes, /*seed=*/0, DType::float32, device);
}

double parameter_bytes() {
  return 4.0 * 128 * 128 * num_layers;
}

// P parameters, P gradients, and AdamW's two numbers for each parameter; n ranks.
double formula(const Depth& depth) {
  const double p = parameter_bytes();
  const double n = num_ranks;
  if (!depth.shard) return p + p + 2 * p;
  if (*depth.shard == ShardDepth::optimizer) return p + (p + p / n) + 2 * p / n;
  if (*depth.shard == ShardDepth::gradients) return p + p / n + 2 * p / n;
  return p / n + p / n + 2 * p / n;
}

void train_step(nn::Module& model, optim::Optimizer& optimizer, const Tensor& x, int step) {
  optimizer.zero_grad();
  const Variable y = model(Variable(x));
  scale(mean(multiply(y, y)), 1.0 / (1 + step)).backward();
  optimizer.step();
}

struct Trained {
  double kept = 0;     // bytes of rank 0 between two steps
  double largest = 0;  // largest message of a step
  double sent = 0;     // bytes sent in a step
  nn::StateDict weights;
};

// One rank's part.
Trained train(const Depth& depth, int num_steps, comm::Communicator& ranks, Device device) {
  runtime::MemoryPool& memory = runtime::logical_device(device).memory();
  Rng rng(static_cast<std::uint64_t>(ranks.rank()));
  const Tensor x = Tensor::uniform({kRows, 127}, 0, 1, rng, DType::float32, device);
  const std::size_t before = memory.statistics().current_bytes;
  const auto model = make_model(device);
  std::shared_ptr<nn::Module> wrapped;
  std::vector<optim::ParameterGroup> groups;
  const optim::AdamWOptions options{.learning_rate = 1e-3};
  if (depth.shard) {
    const auto sharded = std::make_shared<Sharded>(model, ranks, *depth.shard);
    groups = sharded->groups(options.weight_decay);
    wrapped = sharded;
  } else {
    wrapped = std::make_shared<parallel::Ddp>(model, ranks);
    groups = {{model->parameters(), options.weight_decay}};
  }
  optim::AdamW adamw(groups, options);
  for (int step = 0; step < num_steps - 1; ++step) train_step(*wrapped, adamw, x, step);

  Trained trained;
  memory.reset_peak();
  const std::size_t sent = trace::collective_bytes_of(ranks.rank());
  train_step(*wrapped, adamw, x, num_steps - 1);
  trained.sent = static_cast<double>(trace::collective_bytes_of(ranks.rank()) - sent);
  trained.kept = static_cast<double>(memory.statistics().current_bytes - before);
  trained.largest = static_cast<double>(memory.statistics().peak_bytes - before);
  memory.set_limit(kNoLimit);  // of training: rank 0 now collects the whole model
  if (depth.shard) {
    trained.weights = std::static_pointer_cast<Sharded>(wrapped)->state_dict();
  } else {
    trained.weights = nn::state_dict(*model);
  }
  // Off the devices whose memory is measured.
  for (auto& [name, tensor] : trained.weights) tensor = tensor.to({DeviceType::cpu, 63});
  return trained;
}

double difference(const nn::StateDict& a, const nn::StateDict& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, tutorial::max_abs_difference(a[i].second, b[i].second));
  }
  return largest;
}

void show_pieces(const std::vector<Device>& devices) {
  std::vector<std::string> of_rank(devices.size());
  tutorial::on_ranks(devices, [&](comm::Communicator& ranks, int rank, Device device) {
    const Sharded sharded(make_model(device), ranks, ShardDepth::parameters);
    for (const parallel::ShardPiece& piece : sharded.units()[0].pieces()) {
      of_rank[rank] +=
          fmt::format("{}{}[{} ... {}]", of_rank[rank].empty() ? "" : ", ", piece.name,
                      piece.offset, piece.offset + piece.value.value().num_elements() - 1);
    }
  });
  for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
    fmt::print("rank {} of the first layer's 16,384: {}\n", rank, of_rank[rank]);
  }
}

double compare_depths(const std::vector<Device>& devices, int num_steps) {
  std::vector<Trained> all;
  double worst = 0, apart = 0;
  fmt::print("{:<10} {:>9} {:>9} {:>7} {:>9} {:>9} {:>7} {:>11}\n", "depth", "keeps", "formula",
             "of DDP", "at most", "sends", "of DDP", "differs by");
  for (const Depth& depth : kDepths) {
    Trained trained;
    tutorial::on_ranks(devices, [&](comm::Communicator& ranks, int rank, Device device) {
      train(depth, 1, ranks, device);  // a GPU's first step makes room for its kernels, too
      Trained mine = train(depth, num_steps, ranks, device);
      if (rank == 0) trained = std::move(mine);
    });
    all.push_back(std::move(trained));
    const Trained& last = all.back();
    const double drift = difference(last.weights, all[0].weights);
    worst = std::max(worst, drift);
    apart = std::max(apart, std::abs(last.kept - formula(depth)) / formula(depth));
    fmt::print(
        "{:<10} {:>5.0f} KiB {:>5.0f} KiB {:>5.0f} % {:>5.0f} KiB {:>5.0f} KiB {:>6.2f}x"
        " {:>11.1g}\n",
        depth.name, last.kept / 1024, formula(depth) / 1024, 100 * last.kept / all[0].kept,
        last.largest / 1024, last.sent / 1024, last.sent / all[0].sent, drift);
  }
  tutorial::say(
      "differs by: the largest difference of a weight from DDP's. That it is 0, and not rounding, "
      "is the news: each gradient is the sum of the same ranks' numbers in the same order, and an "
      "update is the same formula, computed on one rank instead of on all.");
  tutorial::check_close("every depth gives the weights of DDP", worst,
                        tutorial::weight_tolerance(num_steps));
  // The pool's blocks are up to an eighth larger than what is asked for.
  tutorial::check("what a rank keeps is what the formula says", apart < 0.125);
  const auto ratio = [&](std::size_t i) { return all[i].sent / all[0].sent; };
  tutorial::check("a step sends as much as DDP's, and 1.5 times that at the third depth",
                  std::abs(ratio(1) - 1) < 0.02 && std::abs(ratio(2) - 1) < 0.02 &&
                      std::abs(ratio(3) - 1.5) < 0.02);
  return all[3].kept / all[0].kept;
}

// --- devices that are too small

// Trains with this much free memory on each device. Returns what happened: the weights of rank 0,
// or the error of the rank that ran out of memory first.
struct Attempt {
  nn::StateDict weights;
  double largest = 0;
  std::string error;  // empty: it trained
};

Attempt train_within(double num_bytes, const Depth& depth, const std::vector<Device>& devices,
                     int num_steps) {
  Attempt attempt;
  const auto limit = [&](std::size_t more) {
    for (const Device device : devices) {
      runtime::MemoryPool& memory = runtime::logical_device(device).memory();
      memory.set_limit(more == kNoLimit ? kNoLimit : memory.statistics().current_bytes + more);
    }
  };
  limit(static_cast<std::size_t>(num_bytes));
  try {
    tutorial::on_ranks(devices, [&](comm::Communicator& ranks, int rank, Device device) {
      Trained mine = train(depth, num_steps, ranks, device);
      if (rank == 0) attempt.weights = std::move(mine.weights), attempt.largest = mine.largest;
    });
  } catch (const Error& error) {
    if (error.code() != ErrorCode::Device) throw;
    attempt.error = error.what();
    attempt.error.erase(0, attempt.error.find("asked for"));  // before it: which rank was first
    attempt.error.erase(attempt.error.find(" (peak"));
  }
  limit(kNoLimit);
  return attempt;
}

// Half of what DDP keeps, so 2 P. Returns the depths that fit.
std::vector<std::string> train_on_small_devices(const std::vector<Device>& devices, int num_steps) {
  const double capacity = 2 * parameter_bytes();
  fmt::print("each device has {:.0f} KiB; DDP keeps {:.0f}\n", capacity / 1024,
             formula(kDepths[0]) / 1024);
  const Attempt unlimited = train_within(1e15, kDepths[0], devices, num_steps);
  std::vector<std::string> fitting;
  double worst = 0;
  for (const Depth& depth : kDepths) {
    const Attempt attempt = train_within(capacity, depth, devices, num_steps);
    if (!attempt.error.empty()) {
      tutorial::say(fmt::format("{:<10} out of memory: {}", depth.name, attempt.error), 11);
      continue;
    }
    fmt::print("{:<10} trains within {:.0f} KiB\n", depth.name, attempt.largest / 1024);
    fitting.push_back(depth.name);
    worst = std::max(worst, difference(attempt.weights, unlimited.weights));
  }
  tutorial::check("DDP does not fit", fitting.empty() || fitting[0] != kDepths[0].name);
  if (num_ranks >= 4) {
    tutorial::check("with its parameters cut the model does",
                    !fitting.empty() && fitting.back() == kDepths.back().name);
  }
  tutorial::check_close("what trains has the weights of DDP with enough memory", worst,
                        tutorial::weight_tolerance(num_steps));
  return fitting;
}

// At the third depth a layer's parameters have memory while the layer runs.
void look_between_steps(const std::vector<Device>& devices) {
  std::string error;
  std::size_t num_whole = 0, num_parameters = 0;
  tutorial::on_ranks(devices, [&](comm::Communicator& ranks, int rank, Device device) {
    const auto model = make_model(device);
    const Sharded sharded(model, ranks, ShardDepth::parameters);
    const std::string message =
        tutorial::expect_error([&] { model->parameters()[0].value().to_vector<float>(); });
    const nn::StateDict weights = sharded.state_dict();  // every rank gives its parts
    if (rank != 0) return;
    error = message;
    num_parameters = model->num_parameters();
    for (const auto& [name, tensor] : weights) num_whole += tensor.num_elements();
  });
  tutorial::say("  " + error, 4);
  fmt::print("state_dict() gathers layer by layer, for rank 0: {} numbers\n", num_whole);
  tutorial::check("it has all parameters", num_whole == num_parameters);
}

void run(const tutorial::Options& options) {
  num_ranks = options.num_devices;
  const std::vector<Device> devices = options.devices(num_ranks);
  const int num_steps = options.fast ? 3 : 10;
  tutorial::step(1, fmt::format("cut each of {} layers into {} parts", num_layers, num_ranks));
  show_pieces(devices);

  tutorial::step(2, fmt::format("{} steps of AdamW, with DDP and at each depth", num_steps));
  const double share = compare_depths(devices, num_steps);

  tutorial::step(3, "the same on devices with half the memory");
  const std::vector<std::string> fitting = train_on_small_devices(devices, num_steps);

  tutorial::step(4, "read a parameter between two steps");
  look_between_steps(devices);

  tutorial::answer(
      fmt::format(
          "Each of {} ranks keeps {:.0f} % of what DDP keeps. With half of DDP's memory DDP fails, "
          "and {}. A step on a rank's own part, in the middle of DDP's all-reduce, sends no more "
          "than DDP; cut parameters, gathered layer by layer, cost another all-gather.",
          num_ranks, 100 * share,
          fitting.empty() ? "so does ZeRO"
                          : fmt::format("ZeRO trains (cut: {})", fmt::join(fitting, ", "))),
      {{"--ranks 8", "Each rank keeps an eighth."},
       {"--layers 32", "The layer at work (\"at most\") is a smaller part of the model."}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  const auto add_flags = [](Flags& flags, Options& options) {
    flags.add_number("--ranks", options.num_devices, 2, 16, "how many, each with a device");
    flags.add_number("--layers", num_layers, 2, 256, "layers of 16,384 parameters");
  };
  constexpr const char* kQuestion =
      "How can several devices train a model that fits on none of them?";
  return run_main(argc, argv, kQuestion, run, {.num_devices = 4, .add_flags = add_flags});
}
