// 27: Does it matter if eight devices share one batch, or take a batch each?
//
// Shared by eight devices, a batch makes the same training step (but for batch norms: tutorial 28)
// with an eighth of the rows on each: the kernels get shorter, but never shorter than their launch,
// and the all-reduce comes on top. (It is called strong scaling.) With a batch for each, every
// device computes as before, and an epoch has an eighth of the steps; but each step is one of a
// batch eight times as large, so the training is another one (weak scaling; tutorial 26 has its
// price).
//
// You will see: ResNet-18 on 1, 2, 4 and 8 GPUs of a server, in slow motion, with one batch for all
// and with a batch for each.
//
// Run:  27_scale_batch [--guess 1|2|3] [--machine dgx-a100] [--batch 64] [--fast]
//
// Expected output with --fast: tutorials/expected/27.txt

#include <lockstep.h>

#include <numeric>
#include <string>
#include <vector>

#include "simulate/slow_motion/simulated_link.h"
#include "tutorials/acted.h"
#include "tutorials/common.h"

namespace {

using namespace lockstep;
using tutorial::ActedSteps;

constexpr const char* kResNet = "resnet18:8";
constexpr int kEpochRows = 60'000;  // Fashion-MNIST

std::string machine = tutorial::kMachine;  // --machine
int num_rows = 64;                         // --batch

// Steps of DDP, each device on its own rows of random images.
ActedSteps act_out(const predict::Topology& topology, int num_devices, int rows_of_device,
                   int num_steps) {
  const std::string name = fmt::format("synthetic:{}x28x28x1x10", num_devices * rows_of_device);
  const data::LabelledTensors images =
      data::to_tensors(datasets::load_dataset(datasets::parse_dataset(name), {}, /*seed=*/0).train);
  tutorial::ActedTraining training;
  training.num_devices = num_devices;
  std::vector<Tensor> labels;
  for (int rank = 0; rank < num_devices; ++rank) {
    std::vector<std::size_t> rows(rows_of_device);
    std::iota(rows.begin(), rows.end(), rank * rows.size());
    const data::LabelledTensors mine = images.take(rows, {DeviceType::cpu, rank});
    training.inputs.push_back(mine.x.reshape({rows.size(), 28, 28, 1}));
    labels.push_back(mine.labels);
  }
  training.train = [&](int steps, const std::function<void()>& after_step) {
    std::vector<Tensor> weights;
    const auto train_rank = [&](comm::Communicator& ranks) {
      const int rank = ranks.rank();
      const auto net = nn::make_model(kResNet, {{28, 28, 1}, 10}, /*seed=*/0, DType::float32,
                                      {DeviceType::cpu, rank});
      parallel::Ddp ddp(net, ranks);
      optim::Sgd sgd(net->parameters(), {.learning_rate = 0.05});
      for (int step = 0; step < steps; ++step) {
        tutorial::record_step(step, training.inputs[rank], [&] {
          sgd.zero_grad();
          cross_entropy(ddp(training.inputs[rank]), labels[rank]).backward();
          sgd.step();
        });
        if (rank == 0 && after_step) after_step();
      }
      if (rank > 0) return;
      for (const Variable& parameter : net->parameters()) weights.push_back(parameter.value());
    };
    comm::run_ranks(num_devices, train_rank, slow_motion::with_simulated_links(num_devices));
    return weights;
  };
  return tutorial::act_out(topology, training, num_steps);
}

// The last step of an epoch may have fewer rows.
int steps_of_epoch(int rows) {
  return (kEpochRows + rows - 1) / rows;
}

// On some devices: a step, and seconds of an epoch.
struct Epochs {
  ActedSteps step;    // with one batch for all devices
  double shared = 0;  // one batch for all devices
  double each = 0;    // a batch for each
};

// On 1, 2, 4 and 8 devices.
std::vector<Epochs> act_out_epochs(const predict::Topology& topology, int num_steps) {
  tutorial::say(tutorial::describe_slow_motion(topology));
  fmt::print("               {0} rows for all                 {0} rows for each\n", num_rows);
  fmt::print("devices      step     epoch  speed-up        step     epoch  speed-up\n");
  std::vector<Epochs> epochs;
  for (const int num_devices : {1, 2, 4, 8}) {
    const ActedSteps step = act_out(topology, num_devices, num_rows / num_devices, num_steps);
    const double each = num_devices == 1
                            ? step.step_seconds
                            : act_out(topology, num_devices, num_rows, num_steps).step_seconds;
    epochs.push_back({step, step.step_seconds * steps_of_epoch(num_rows),
                      each * steps_of_epoch(num_rows * num_devices)});
    const Epochs& here = epochs.back();
    fmt::print("{:>7} {:>6.2f} ms {:>7.2f} s {:>8.1f}x  {:>7.2f} ms {:>7.2f} s {:>8.1f}x\n",
               num_devices, 1e3 * step.step_seconds, here.shared, epochs[0].shared / here.shared,
               1e3 * each, here.each, epochs[0].each / here.each);
  }
  return epochs;
}

tutorial::Guess guess("With one batch for all, an epoch on eight GPUs is ...",
                      {"about an eighth as long as on one", "shorter, but not by so much",
                       "no shorter"});

// The right guess, from the times of the smallest and the largest number of devices.
int right_guess(double speed_up) {
  return speed_up > 6 ? 1 : speed_up > 1.1 ? 2 : 3;
}

void run(const tutorial::Options& options) {
  require(num_rows % 8 == 0, ErrorCode::Usage, "--batch", "expected a multiple of 8, found {}",
          num_rows);
  const predict::Topology topology = predict::find_topology(machine);
  guess.ask(options);

  tutorial::step(
      1, fmt::format("{} on 1, 2, 4 and 8 GPUs: an epoch of {} images", kResNet, kEpochRows));
  const std::vector<Epochs> epochs = act_out_epochs(topology, options.fast ? 2 : 5);
  const double shared = epochs[0].shared / epochs[3].shared;
  const double each = epochs[0].each / epochs[3].each;
  guess.judge(right_guess(shared), fmt::format("eight GPUs are {:.1f} times as fast", shared));
  tutorial::check_times("on eight devices an epoch is shorter with a full batch on each",
                        epochs.back().each < epochs.back().shared);

  tutorial::step(2, "what an epoch consists of");
  const int steps = steps_of_epoch(num_rows), large_steps = steps_of_epoch(8 * num_rows);
  fmt::print("eight GPUs         rows of a step     steps of an epoch     rows on a GPU\n");
  fmt::print("{:<16} {:>16} {:>21} {:>17}\n", "a batch for all", num_rows, steps, num_rows / 8);
  fmt::print("{:<16} {:>16} {:>21} {:>17}\n", "a batch for each", 8 * num_rows, large_steps,
             num_rows);
  tutorial::say(fmt::format(
      "One batch for all is the training of one GPU, step for step, except for its batch norms "
      "(28). A batch for each is another training, whose speed counts only if its {} large steps "
      "bring the model as far as {} small ones.",
      large_steps, steps));
  const auto kernels_ms = [](const ActedSteps& step) {
    return 1e3 * step.busy[0] * step.step_seconds;
  };
  tutorial::answer(
      fmt::format(
          "With {} rows for all, eight GPUs are {:.1f} times as fast as one: GPU 0's kernels take "
          "{:.2f} ms with an eighth of the rows, instead of {:.2f}, and exposed communication "
          "adds {:.2f}. With {} rows for each they are {:.1f} times as fast, by an epoch of {} "
          "steps instead of {}.",
          num_rows, shared, kernels_ms(epochs[3].step), kernels_ms(epochs[0].step),
          1e3 * epochs[3].step.breakdown.exposed_comm, num_rows, each, large_steps, steps),
      {{"--batch 128", "Twice the rows: does one batch for all pay now?"},
       {"--machine titanx-pascal-dual-root-8",
        "Slower GPUs, slower links: which half of the table suffers more?"}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  const auto add_flags = [](Flags& flags, Options&) {
    guess.add_flag(flags);
    flags.add_text("--machine", machine, "a topology of eight devices or more");
    flags.add_number("--batch", num_rows, 8, 512, "rows, a multiple of 8");
  };
  constexpr const char* kQuestion =
      "Does it matter if eight devices share one batch, or take a batch each?";
  return run_main(argc, argv, kQuestion, run,
                  {.num_devices = 8, .add_flags = add_flags, .hardware = Setup::Hardware::cpu});
}
