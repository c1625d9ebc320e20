// 30: Does it matter how a batch is cut into devices and micro-batches?
//
// A batch can be cut twice: into shards, one for each device, and into micro-batches, one after the
// other on the same device. Both add up gradients that belong to one step, so the result is the
// same, as long as each loss has its share and gradients travel once a step and not once a micro-
// batch.
//
// You will see: a small GPT trained on 4,096 characters a step by 1, 2 and 4 devices in 1 and 4
// micro-batches: one device's weights each time, with one all-reduce a step. (build-nanogpt cuts
// its 524,288 tokens in the same way.) Then two mistakes: the sync switch set after forward, as
// build-nanogpt had it in its video; and losses not divided by the number of micro-batches.
//
// Run:  30_accumulate_gradients [--windows 64] [--micro 4] [--device auto|cpu|cuda] [--fast]
//
// Expected output with --fast: tutorials/expected/30.txt

#include <lockstep.h>

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutorials/common.h"

namespace {

using namespace lockstep;

constexpr const char* kModel = "gpt:2-2-32-64";  // layers, heads, channels, context
constexpr std::size_t kContext = 64;             // characters of a window
constexpr int kMostDevices = 4;

int num_windows = 64;  // --windows of a batch
int num_micro = 4;     // --micro

const data::LabelledRows& load_text() {
  static const datasets::Dataset text =
      datasets::load_dataset(datasets::parse_dataset("embedded-text"), "", /*seed=*/0, {kContext});
  return text.train;
}

// With the same weights on every rank.
std::shared_ptr<nn::Module> make_model(Device device) {
  const nn::ModelData data{{kContext}, load_text().num_classes, nn::ModelData::Values::tokens};
  return nn::make_model(kModel, data, /*seed=*/0, DType::float32, device);
}

// A rank's windows of each batch, cut into micro-batches.
class MicroBatches {
 public:
  MicroBatches(int count, int rank, int num_ranks, Device device)
      : count_(count),
        loader_(load_text(), {.batch = num_windows,
                              .drop_last = true,
                              .shuffle = true,
                              .rank = rank,
                              .world_size = num_ranks,
                              .device = device}) {}

  void next_step() {
    while (!(batch_ = loader_.next())) loader_.start_epoch(++epoch_);
  }

  // The mean loss of one of them.
  Variable loss(nn::Module& model, int number) const {
    const std::size_t size = batch_->x.size(0) / count_;
    const Tensor labels = batch_->labels.rows(number * size, (number + 1) * size);
    return cross_entropy(model(batch_->x.rows(number * size, (number + 1) * size)),
                         labels.reshape({labels.num_elements()}));
  }

 private:
  int count_;
  std::uint64_t epoch_ = 0;
  data::DataLoader loader_;
  std::optional<data::Batch> batch_;
};

struct Cut {
  int devices = 1;
  int micro_batches = 1;
  bool uses_no_sync = true;
};

// Adds up the gradients of all micro-batches, and all-reduces the sum.
void accumulate(parallel::Ddp& ddp, const MicroBatches& batches, const Cut& cut) {
  const auto pass = [&](int number) {
    scale(batches.loss(ddp, number), 1.0 / cut.micro_batches).backward();
  };
  const int last = cut.micro_batches - 1;
  if (cut.uses_no_sync) {
    const auto no_sync = ddp.no_sync();
    for (int i = 0; i < last; ++i) pass(i);
  } else {
    for (int i = 0; i < last; ++i) pass(i);
  }
  pass(last);
}

struct Trained {
  std::vector<Tensor> weights;
  double all_reduces = 0;  // all-reduces in a step
  double gradient_bytes = 0;
};

std::vector<Tensor> weights_of(const nn::Module& model) {
  std::vector<Tensor> weights;
  for (const Variable& parameter : model.parameters()) weights.push_back(parameter.value());
  return weights;
}

Trained train(const Cut& cut, const std::vector<Device>& devices, int num_steps) {
  Trained trained;
  tutorial::on_ranks(
      {devices.begin(), devices.begin() + cut.devices},
      [&](comm::Communicator& ranks, int rank, Device device) {
        const auto model = make_model(device);
        parallel::Ddp ddp(model, ranks);
        optim::Sgd sgd(model->parameters(), {.learning_rate = 0.1, .momentum = 0.9});
        MicroBatches batches(cut.micro_batches, rank, cut.devices, device);
        for (int step = 0; step < num_steps; ++step) {
          batches.next_step();
          sgd.zero_grad();
          accumulate(ddp, batches, cut);
          sgd.step();
        }
        if (rank != 0) return;
        const double all_reduces = ddp.reducer().num_all_reduces();
        trained = {weights_of(*model), all_reduces / num_steps, 4.0 * model->num_parameters()};
      });
  return trained;
}

void compare_cuts(const std::vector<Device>& devices, int num_steps) {
  const Trained one = train({}, devices, num_steps);
  double worst = 0, with = 0, without = 0;
  fmt::print("devices  micro-batches  windows  all-reduces a step  sent by each  differs by\n");
  for (const Cut& cut : std::vector<Cut>{{1, 1},
                                         {1, num_micro},
                                         {2, 1},
                                         {2, num_micro},
                                         {4, 1},
                                         {4, num_micro},
                                         {4, num_micro, false}}) {
    const Trained trained = train(cut, devices, num_steps);
    const double difference = tutorial::max_abs_difference(trained.weights, one.weights);
    const double sent =
        trained.all_reduces * 2 * (cut.devices - 1) / cut.devices * trained.gradient_bytes;
    fmt::print("{:7} {:14} {:8} {:19.0f} {:9.0f} KiB {:11.1g}{}\n", cut.devices, cut.micro_batches,
               num_windows / cut.devices / cut.micro_batches, trained.all_reduces, sent / 1024,
               difference, cut.uses_no_sync ? "" : "  *");
    worst = std::max(worst, difference);
    (cut.uses_no_sync ? with : without) = trained.all_reduces;
  }
  fmt::print("*: without no_sync\n");
  tutorial::check_close("every cut gives one device's weights", worst,
                        tutorial::weight_tolerance(num_steps));
  tutorial::check(fmt::format("one all-reduce a step with no_sync, {} without", num_micro),
                  with == 1 && without == num_micro);
}

// Forward, then the switch for this micro-batch, then backward. So forward sees the switch as the
// micro-batch before left it.
void set_switch_late(const std::vector<Device>& devices) {
  std::string message;
  std::size_t num_all_reduces = 0;
  std::vector<std::vector<Tensor>> weights(2);
  tutorial::on_ranks(
      {devices[0], devices[1]}, [&](comm::Communicator& ranks, int rank, Device device) {
        MicroBatches batches(2, rank, 2, device);
        batches.next_step();
        {
          parallel::Ddp ddp(make_model(device), ranks);
          const Variable first = batches.loss(ddp, 0);  // the switch is on
          const auto no_sync = ddp.no_sync();
          const std::string error = tutorial::expect_error([&] { first.backward(); });
          if (rank == 0) message = error;
        }
        const auto model = make_model(device);
        parallel::Ddp ddp(model, ranks);
        optim::Sgd sgd(model->parameters(), {.learning_rate = 0.1});
        Variable last;
        {
          const auto no_sync = ddp.no_sync();
          scale(batches.loss(ddp, 0), 0.5).backward();
          last = scale(batches.loss(ddp, 1), 0.5);  // the switch is still off
        }
        last.backward();
        sgd.step();
        weights[rank] = weights_of(*model);
        if (rank == 0) num_all_reduces = ddp.reducer().num_all_reduces();
      });
  const double difference = tutorial::max_abs_difference(weights[0], weights[1]);
  fmt::print("first micro-batch: forward with the switch on, backward with it off\n");
  tutorial::say("  " + message, 4);
  fmt::print("  (PyTorch says nothing, and all-reduces it)\n");
  fmt::print("last micro-batch: forward with the switch off, backward with it on\n");
  fmt::print("  {} all-reduces; after one step the two ranks differ by {:.1g}\n", num_all_reduces,
             difference);
  tutorial::check("nothing was all-reduced, and the ranks' weights differ",
                  num_all_reduces == 0 && difference > 1e-5);
}

// The length of one device's gradient after so many passes with this weight of each loss.
double gradient_norm(int passes, double weight, Device device) {
  const auto model = make_model(device);
  MicroBatches batches(passes, 0, 1, device);
  batches.next_step();
  for (int i = 0; i < passes; ++i) scale(batches.loss(*model, i), weight).backward();
  const double norm =
      optim::clip_grad_norm(model->parameters(), std::numeric_limits<double>::infinity());
  fmt::print("{} {}, each loss times {:.2g}: gradient norm {:.3f}\n", passes,
             passes == 1 ? "pass" : "passes", weight, norm);
  return norm;
}

void run(const tutorial::Options& options) {
  require(num_windows % (kMostDevices * num_micro) == 0, ErrorCode::Usage, "--windows",
          "expected a multiple of {} devices times {} micro-batches, found {}", kMostDevices,
          num_micro, num_windows);
  const std::vector<Device> devices = options.devices(kMostDevices);
  const int num_steps = options.fast ? 2 : 20;
  tutorial::step(1, fmt::format("{} windows of {} characters a step, {} steps", num_windows,
                                kContext, num_steps));
  compare_cuts(devices, num_steps);

  tutorial::step(2, "a mistake: the sync switch is set after forward");
  set_switch_late(devices);

  tutorial::step(3, "a mistake: losses that are not divided");
  const double whole = gradient_norm(1, 1, devices[0]);
  gradient_norm(num_micro, 1.0 / num_micro, devices[0]);
  const double undivided = gradient_norm(num_micro, 1, devices[0]);
  tutorial::say(
      fmt::format("SGD would step {} times as far. AdamW divides a gradient by its own size, so "
                  "its losses look "
                  "right; the norm in the log, and clipping, show it.",
                  num_micro));
  tutorial::check(fmt::format("without the division the gradient is {} times as long", num_micro),
                  std::abs(undivided / whole / num_micro - 1) < 1e-3);
  tutorial::answer(
      fmt::format("No: {} tokens give one device's weights however they are cut, if each loss is "
                  "divided by its {} micro-batches, and if no_sync covers forward and backward of "
                  "all but the last. Then {} all-reduces become one.",
                  num_windows * kContext, num_micro, num_micro),
      {{"--micro 8", "Half as many windows at a time, and still one all-reduce."},
       {"--windows 128", "Twice the tokens: the all-reduce stays as large."}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  const auto add_flags = [](Flags& flags, Options&) {
    flags.add_number("--windows", num_windows, 8, 1024, "windows of 64 characters per step");
    flags.add_number("--micro", num_micro, 2, 64, "micro-batches per step");
  };
  constexpr const char* kQuestion =
      "Does it matter how a batch is cut into devices and micro-batches?";
  return run_main(argc, argv, kQuestion, run,
                  {.num_devices = kMostDevices, .add_flags = add_flags});
}
