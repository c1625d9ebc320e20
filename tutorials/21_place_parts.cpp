// 21: What does it cost to place the parts of one model on three devices by hand?
//
// A model that is too large for one device can be cut into parts, each on a device of its own. Then
// an output has to be copied to the next part's device, and a part can only begin when the one
// before it is done: the devices take turns, and are no faster than one.
//
// You will see: a model in three parts, each moved to a device of its own; the error that you get
// if you forget to copy an output to the next device; the copy, and how gradients return through
// it; weights with the same bits as one device's; then a step simulated on three GPUs that are not
// here (as in 11): two of three always wait; and a batch cut into micro-batches, so that they wait
// less. In PyTorch: part1.to("cuda:0"), part2.to("cuda:1"), ..., and h.to("cuda:1") between them.
//
// Run:  21_place_parts [--hidden 768] [--micro-batches 4] [--machine dgx-a100]
//                      [--device auto|cpu|cuda] [--fast]
//
// Expected output with --fast: tutorials/expected/21.txt

#include <lockstep.h>

#include <memory>
#include <numeric>
#include <string>

#include "engine/autograd/node.h"
#include "tutorials/acted.h"
#include "tutorials/common.h"
#include "tutorials/lanes.h"
#include "tutorials/rows.h"

namespace {

using namespace lockstep;
using tutorial::ActedSteps;
using tutorial::Rows;

constexpr int kParts = 3;
constexpr int kBatch = 1440;
constexpr int kHidden = 768;
constexpr int kMicroBatches = 4;
constexpr double kLeastBusy = 0.2, kMostBusy = 0.36;  // three devices, one after the other
constexpr double kLeastGain = 1.2;                    // micro-batches against none

std::string machine = tutorial::kMachine;  // --machine
int hidden = kHidden;                      // --hidden
int num_micro_batches = kMicroBatches;     // --micro-batches

// Three parts, each on a device of its own; or on the same one, three times.
class Net final : public nn::ModuleOf<Net> {
 public:
  explicit Net(const std::vector<Device>& devices) : devices_(devices) {
    manual_seed(0);
    const auto layer = [](int in, int out) { return std::make_shared<nn::Linear>(in, out); };
    const auto relu = [] { return std::make_shared<nn::ReLU>(); };
    using Modules = std::vector<std::shared_ptr<nn::Module>>;
    const Modules parts[kParts] = {{layer(64, hidden), relu(), layer(hidden, hidden), relu()},
                                   {layer(hidden, hidden), relu()},
                                   {layer(hidden, hidden), relu(), layer(hidden, 10)}};
    for (int i = 0; i < kParts; ++i) {
      register_child(fmt::format("part{}", i), std::make_shared<nn::Sequential>(parts[i]));
      part(i).to(devices[i]);
    }
  }
  nn::Module& part(int i) const { return *children()[i].second; }

  Variable forward(const Variable& x) override {
    Variable h = x;
    for (int i = 0; i < kParts; ++i) h = part(i)(lockstep::to(h, devices_[i]));
    return h;
  }

 private:
  std::vector<Device> devices_;
};

// One step. Micro-batches go through the parts behind each other, so that part 0 may begin with the
// second while part 1 has the first; their gradients add up to the batch's.
void train_step(Net& net, const Rows& batch, int num_pieces, optim::Sgd& sgd) {
  const int rows = batch.count() / num_pieces;
  const Device last = net.part(kParts - 1).parameters()[0].device();
  std::vector<Variable> losses;
  sgd.zero_grad();
  for (int i = 0; i < num_pieces; ++i) {
    const Rows piece = batch.part(i * rows, (i + 1) * rows);
    const Variable loss = cross_entropy(net(piece.x), piece.labels.to(last));
    losses.push_back(scale(loss, 1.0 / num_pieces));
  }
  for (const Variable& loss : losses) loss.backward();
  sgd.step();
}

// The same batch in each step.
std::vector<Tensor> train(const std::vector<Device>& devices, int num_pieces, const Rows& batch,
                          int num_steps, const std::function<void()>& after_step = {}) {
  Net net(devices);
  optim::Sgd sgd(net.parameters(), {.learning_rate = 0.05, .momentum = 0.9});
  for (int step = 0; step < num_steps; ++step) {
    tutorial::record_step(step, batch.x, [&] { train_step(net, batch, num_pieces, sgd); });
    if (after_step) after_step();
  }
  std::vector<Tensor> weights;
  for (const Variable& parameter : net.parameters()) {
    weights.push_back(parameter.value().to(Device{}));
  }
  return weights;
}

void show_parts(const std::vector<Device>& devices, const Rows& batch) {
  tutorial::step(1, "three parts, each on a device of its own");
  Net net(devices);
  for (int i = 0; i < kParts; ++i) {
    fmt::print("part {} on {}: {} parameters\n{}\n", i, to_string(devices[i]),
               net.part(i).num_parameters(), net.part(i).to_string());
  }
  tutorial::step(2, "an output has to be copied to the next part's device");
  const Variable h = net.part(0)(batch.x);
  tutorial::show_error([&] { net.part(1)(h); });
  const Variable copied = to(h, devices[1]);
  fmt::print("h: {}\nto(h, {}): {}, node {}\n", describe(h.value()), to_string(devices[1]),
             describe(copied.value()), copied.node()->name());

  tutorial::step(3, "backward: gradients are copied back the same way");
  cross_entropy(net(batch.x), batch.labels.to(devices[2])).backward();
  for (int i = 0; i < kParts; ++i) {
    const Tensor grad = net.part(i).parameters()[0].grad();
    fmt::print("gradient of part {}'s first weight: {}\n", i, describe(grad));
  }
}

void check_weights(const std::vector<Device>& devices, const Rows& batch, int num_steps) {
  tutorial::step(4, "train: as on one device");
  const std::vector<Device> one(kParts, devices[0]);
  const std::vector<Tensor> expected = train(one, 1, batch, num_steps);
  tutorial::check(
      fmt::format("after {} steps the weights are those of one device, to the bit", num_steps),
      tutorial::has_same_bits(train(devices, 1, batch, num_steps), expected));
  tutorial::check_close(
      fmt::format("in {} micro-batches", num_micro_batches),
      tutorial::max_abs_difference(train(devices, num_micro_batches, batch, num_steps), expected),
      tutorial::weight_tolerance(num_steps));
}

ActedSteps act_out(const predict::Topology& topology, int num_devices, int num_pieces,
                   const Rows& batch, int num_steps) {
  std::vector<Device> devices;
  for (int i = 0; i < kParts; ++i) devices.push_back({DeviceType::cpu, i % num_devices});
  tutorial::ActedTraining training;
  training.num_devices = num_devices;
  training.inputs = {batch.x};
  training.train = [&](int steps, const std::function<void()>& after_step) {
    return train(devices, num_pieces, batch, steps, after_step);
  };
  return tutorial::act_out(topology, training, num_steps);
}

void print_picture(const ActedSteps& acted, std::int64_t width_ns) {
  tutorial::print_axis(width_ns, /*indent=*/7);
  for (int device = 0; device < kParts; ++device) {
    fmt::print("gpu {} |{}|\n", device, tutorial::draw_kernels(acted, device, width_ns));
  }
}

// Fraction of the step in which a device is busy, on average.
double mean_busy(const ActedSteps& acted) {
  return std::accumulate(acted.busy.begin(), acted.busy.end(), 0.0) / acted.busy.size();
}

void print_times(std::string_view name, const ActedSteps& acted) {
  fmt::print("{:<32} {:>8.0f} us {:>5.0f} % {:>12}\n", name, 1e6 * acted.step_seconds,
             100 * mean_busy(acted), fmt::format("1 : {:.0f}", acted.factor));
}

void run(const tutorial::Options& options) {
  const Rows batch = tutorial::load_digits(options.device()).part(0, kBatch);
  const std::vector<Device> devices = options.devices(kParts);
  show_parts(devices, batch);
  check_weights(devices, batch, options.fast ? 3 : 20);

  const predict::Topology topology = predict::find_topology(machine);
  const Rows here = batch.part(0, kBatch, Device{});
  const int num_steps = options.fast ? 2 : 6;
  tutorial::step(5, "a step on three GPUs");
  tutorial::say(tutorial::describe_slow_motion(topology));
  fmt::print("f forward, b backward, + gradients added up, u update\n");
  const ActedSteps one = act_out(topology, 1, 1, here, num_steps);
  const ActedSteps parts = act_out(topology, kParts, 1, here, num_steps);
  print_picture(parts, tutorial::length_ns(parts));
  fmt::print("the batch in {} micro-batches:\n", num_micro_batches);
  const ActedSteps pieces = act_out(topology, kParts, num_micro_batches, here, num_steps);
  print_picture(pieces, std::max(tutorial::length_ns(parts), tutorial::length_ns(pieces)));

  tutorial::step(6, "compare them");
  fmt::print("                                        step    busy  slowed down\n");
  print_times("one device", one);
  print_times("three parts, one after the other", parts);
  print_times(fmt::format("three parts, {} micro-batches", num_micro_batches), pieces);
  fmt::print("busy: fraction of the step in which a device runs kernels, on average\n");
  const double gain = parts.step_seconds / pieces.step_seconds;
  if (machine == tutorial::kMachine && hidden == kHidden && num_micro_batches == kMicroBatches) {
    tutorial::check_times("three parts are no faster than one device, and 20 to 36 % busy",
                          parts.step_seconds >= one.step_seconds &&
                              mean_busy(parts) >= kLeastBusy && mean_busy(parts) <= kMostBusy);
    tutorial::check_times(
        fmt::format("micro-batches are at least {} times as fast as none", kLeastGain),
        gain >= kLeastGain);
  }
  const std::string behind_each_other =
      num_micro_batches == 1
          ? "One micro-batch is the whole batch, and changes nothing."
          : fmt::format("With {} micro-batches in flight they take {:.0f} us, {} {:.0f} %.",
                        num_micro_batches, 1e6 * pieces.step_seconds,
                        gain > 1 ? "and are busy" : "no less, though busy",
                        100 * mean_busy(pieces));
  tutorial::answer(
      fmt::format("Each part waits for the others: a step takes {:.0f} us on three devices, {:.0f} "
                  "on one, and they are busy {:.0f} % of the time, on average. {}",
                  1e6 * parts.step_seconds, 1e6 * one.step_seconds, 100 * mean_busy(parts),
                  behind_each_other),
      {{"--micro-batches 16", "more of them: when does it stop paying off?"},
       {"--hidden 256",
        "kernels hardly longer than their launch: do smaller pieces still pay off?"}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  const auto add_flags = [](Flags& flags, Options&) {
    flags.add_number("--hidden", hidden, 1, 4096, "units of each hidden layer");
    flags.add_number("--micro-batches", num_micro_batches, 1, kBatch, "pieces of the batch");
    flags.add_text("--machine", machine, "a topology of three devices or more");
  };
  constexpr const char* kQuestion =
      "What does it cost to place the parts of one model on three devices by hand?";
  return run_main(argc, argv, kQuestion, run, {.num_devices = kParts, .add_flags = add_flags});
}
