// 05: What does the DataParallel wrapper do for you, and what does it cost?
//
// One line wraps a model, and it trains on all devices. The line hides that one device does more
// than the others: it sends out rows and weights, collects outputs and gradients, and takes the
// optimizer's step alone, while the rest wait.
//
// You will see: a model wrapped in one line; the devices chosen with {0, 3}; the functional form;
// the two errors that every user of DataParallel meets, word for word, and the ways out; and what
// device 0 has to do more than the others: bytes and memory as counted here, and how busy four GPUs
// of a server would be, in slow motion. PyTorch's names are the same:
// nn.DataParallel(module, device_ids=[0, 3]), nn.parallel.data_parallel(module, inputs, ...).
//
// Run:  05_wrap_model [--devices 4] [--batch 512] [--machine dgx-a100]
//                     [--device auto|cpu|cuda] [--fast]
//
// Expected output with --fast: tutorials/expected/05.txt

#include <lockstep.h>

#include "engine/trace/counters.h"
#include "tutorials/acted.h"
#include "tutorials/common.h"
#include "tutorials/rows.h"

namespace {

using namespace lockstep;
using parallel::DataParallel;
using parallel::DataParallelOptions;

constexpr const char* kModel = "mlp:64-1024-1024-10";

int num_rows = 512;                        // --batch
std::string machine = tutorial::kMachine;  // --machine

std::shared_ptr<nn::Module> make_linear() {
  return std::make_shared<nn::Linear>(10, 1);
}

// Runs work and says on which devices it allocated memory.
void watch(const std::vector<Device>& devices, const std::function<void()>& work) {
  const auto count = [](Device device) {
    return runtime::logical_device(device).memory().statistics().num_allocations;
  };
  std::vector<std::size_t> before;
  for (const Device device : devices) before.push_back(count(device));
  work();
  for (std::size_t d = 0; d < devices.size(); ++d) {
    fmt::print("  {} {}\n", to_string(devices[d]),
               count(devices[d]) == before[d] ? "stayed idle" : "worked");
  }
}

void show_devices(const std::vector<Device>& devices) {
  tutorial::step(1, "wrap a model");
  const auto net = make_linear();
  net->to(devices[0]);
  fmt::print("{}\n", net->to_string());
  const DataParallelOptions first_and_last = {.devices = {devices[0], devices[3]}};
  DataParallel wrapped(net, first_and_last);
  fmt::print("{}\n", wrapped.to_string());

  tutorial::step(2, "30 rows on device_ids {0, 3}");
  Rng rng(1);
  const Variable x(Tensor::uniform({30, 10}, -1, 1, rng, DType::float32, devices[0]));
  const Tensor expected = (*net)(x).value();
  Variable y;
  watch(devices, [&] { y = wrapped(x); });
  fmt::print("output {} on {}\n", to_string(y.shape()), to_string(y.device()));
  tutorial::check_close("the wrapper against one device", y.value(), expected, 1e-6);
  y = parallel::data_parallel(net, x, first_and_last);
  tutorial::check_close("the functional form against one device", y.value(), expected, 1e-6);
}

void show_device_error(const std::vector<Device>& devices) {
  tutorial::step(3, "all tensors must be on devices[0]");
  const auto net = make_linear();
  net->to(devices[1]);
  const Tensor x = Tensor::full({4, 10}, 1.0, DType::float32, devices[0]);
  DataParallel wrapped(net, {.devices = devices});
  tutorial::say("error: " + tutorial::expect_error([&] { wrapped(x); }), 7);
  fmt::print(
      "Replicas are copied from the first device of the list, so the parameters must be\n"
      "there. The input may be anywhere: scatter copies it. The way out:\n"
      "  net->to(devices[0]);  then wrapped(x) gives ");
  net->to(devices[0]);
  fmt::print("{}\n", to_string(wrapped(x).shape()));
}

void show_load_error(const std::vector<Device>& devices) {
  tutorial::step(4, "save the wrapped model, load a bare one");
  const auto net = make_linear();
  net->to(devices[0]);
  DataParallel wrapped(net, {.devices = devices});
  const nn::StateDict saved = nn::state_dict(wrapped);
  for (const auto& [name, tensor] : saved) fmt::print("  {} {}\n", name, describe(tensor));
  nn::Linear bare(10, 1);
  tutorial::say("error: " + tutorial::expect_error([&] { load_state_dict(bare, saved); }), 7);
  fmt::print("Way out 1, the better one: save the inner module. Its file fits any model.\n");
  nn::load_state_dict(bare, nn::state_dict(*wrapped.module()));
  tutorial::check_close("weights of the bare model", tutorial::max_abs_difference(bare, *net), 0);
  fmt::print("Way out 2: wrap the new model before loading.\n");
  const auto fresh = make_linear();
  DataParallel wrapped_again(fresh, {.devices = devices});
  nn::load_state_dict(wrapped_again, saved);
  tutorial::check_close("weights of the wrapped one", tutorial::max_abs_difference(*fresh, *net),
                        0);
}

// Trains net's parameters on the first rows of the digits, always the same batch.
void train(nn::Module& net, const tutorial::Rows& batch, int num_steps) {
  optim::Sgd sgd(net.parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  for (int step = 0; step < num_steps; ++step) {
    sgd.zero_grad();
    const Variable logits = net(batch.x);  // scatter, replicate, parallel apply, gather
    const Variable loss = cross_entropy(logits, batch.labels);  // on device 0 only
    loss.backward();  // sums the replicas' gradients on device 0
    sgd.step();       // on device 0 only
  }
}

// The load of one device.
struct Load {
  double sent_mb = 0;  // per step, to other devices
  double held_mb = 0;  // the most at once
  double busy = 0;     // fraction of a step in which it computes
};

// Trains, compares with one device, and counts bytes and memory.
std::vector<Load> count_loads(const std::vector<Device>& devices, int num_steps) {
  const tutorial::Rows batch = tutorial::load_digits(devices[0]).part(0, num_rows);
  const auto one = nn::make_mlp(kModel, /*seed=*/0), net = nn::make_mlp(kModel, /*seed=*/0);
  one->to(devices[0]);
  train(*one, batch, num_steps);
  one->to({DeviceType::cpu, 63});  // off the devices whose memory is measured now
  net->to(devices[0]);
  DataParallel wrapped(net, {.devices = devices});
  for (const Device device : devices) runtime::logical_device(device).memory().reset_peak();
  trace::reset_collective_counts();
  train(wrapped, batch, num_steps);
  tutorial::check_close(fmt::format("weights after {} steps against one device", num_steps),
                        tutorial::max_abs_difference(*net, *one),
                        tutorial::weight_tolerance(num_steps));
  std::vector<Load> loads;
  for (const Device device : devices) {
    const auto memory = runtime::logical_device(device).memory().statistics();
    loads.push_back(
        {1e-6 * (trace::collective_bytes_of(device.index) / num_steps), 1e-6 * memory.peak_bytes});
  }
  return loads;
}

// The same steps on a machine's GPUs, in slow motion (11).
void add_busy(std::vector<Load>& loads, int num_steps) {
  const int num_devices = std::ssize(loads);
  const tutorial::Training training{.model = kModel,
                                    .batch = num_rows,
                                    .num_devices = num_devices,
                                    .strategy = predict::Strategy::data_parallel};
  const auto acted = tutorial::act_out(predict::find_topology(machine), training, num_steps);
  for (std::size_t d = 0; d < loads.size(); ++d) loads[d].busy = acted.busy[d];
}

// Why the others are not busy, in words that this run's figures and machine allow.
std::string describe_waiting(const predict::Topology& topology, const std::vector<Load>& loads) {
  const int num_others = static_cast<int>(std::ssize(loads)) - 1;
  double busy = 0;
  for (int d = 1; d <= num_others; ++d) busy += loads[d].busy / num_others;
  std::string text = fmt::format(
      "Device 0 also copies the parameters out, gathers the outputs, computes the loss, adds up "
      "all "
      "gradients and updates. Meanwhile the others wait: they are busy {:.0f} % of a step, on "
      "average.",
      100 * busy);
  const int by_nvlink = tutorial::count_nvlink_peers(topology, num_others + 1);
  if (0 < by_nvlink && by_nvlink < num_others) {
    text += fmt::format(
        " GPU 0 of {} has NVLink to only {} of the {} others: the copies to the other {} share its "
        "PCIe link, and all wait for them.",
        topology.name, by_nvlink, num_others, num_others - by_nvlink);
  }
  return text;
}

std::string compare_loads(const std::vector<Device>& devices, bool fast) {
  std::vector<Load> loads = count_loads(devices, fast ? 10 : 50);
  add_busy(loads, fast ? 3 : 6);
  const predict::Topology topology = predict::find_topology(machine);
  tutorial::say(tutorial::describe_slow_motion(topology));
  fmt::print(
      "sent per step: bytes to other devices; peak memory: the most in use at once;\n"
      "busy: fraction of a step in which a GPU of {} computes, in slow motion\n"
      "          sent per step   peak memory       GPU   busy\n",
      machine);
  for (std::size_t d = 0; d < loads.size(); ++d) {
    fmt::print("{:<8} {:>11.2f} MB {:>10.2f} MB     gpu {} {:>4.0f} %\n", to_string(devices[d]),
               loads[d].sent_mb, loads[d].held_mb, d, 100 * loads[d].busy);
  }
  const Load &first = loads[0], &second = loads[1];
  tutorial::check("device 0 sends and holds the most",
                  first.sent_mb > second.sent_mb && first.held_mb > second.held_mb);
  if (devices[0].type == DeviceType::cuda) {
    fmt::print("peak memory includes the 32 MiB that cuBLASLt works in\n");
  }
  tutorial::check_times("device 0 is the busiest", first.busy > second.busy);
  tutorial::say(describe_waiting(topology, loads));
  return fmt::format(
      "It splits every batch, copies the model, gathers the outputs and sums the gradients. Device "
      "0 pays: it sent {:.1f} MB per step (device 1: {:.1f}) and held {:.1f} MB (device 1: "
      "{:.1f}). On {} GPU 0 is busy {:.0f} % of the time, GPU 1 {:.0f} %.",
      first.sent_mb, second.sent_mb, first.held_mb, second.held_mb, machine, 100 * first.busy,
      100 * second.busy);
}

void run(const tutorial::Options& options) {
  show_devices(options.devices(4));
  show_device_error(options.devices(4));
  show_load_error(options.devices(4));
  tutorial::step(5, "train: what device 0 does more than the others");
  tutorial::answer(
      compare_loads(options.devices(options.num_devices), options.fast),
      {{"--devices 8", "Device 0 serves 7 others instead of 3: how busy are they?"},
       {"--devices 8 --machine dgx1-p100",
        "A server without NVSwitch: NVLink joins GPU 0 to only some of the others."},
       {"--batch 1500", "More rows to compute for the same parameters: do the others wait less?"}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  const auto add_flags = [](Flags& flags, Options& options) {
    flags.add_number("--devices", options.num_devices, 4, 8, "for step 5");
    flags.add_number("--batch", num_rows, 16, 1500, "rows per step of step 5");
    flags.add_text("--machine", machine, "whose GPUs step 5 acts out, as of lockstep predict");
  };
  return run_main(argc, argv,
                  "What does the DataParallel wrapper do for you, and what does it cost?", run,
                  {.num_devices = 4, .add_flags = add_flags});
}
