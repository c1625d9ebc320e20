// 07: What does the DataParallel wrapper do for you, and what does it cost?
//
// You will see: a model wrapped in one line; the devices chosen with {0, 3}; the functional form;
// the two errors that every user of DataParallel meets, word for word, and the ways out; and what
// device 0 has to do more than the others, measured. PyTorch's names are the same:
// nn.DataParallel(module, device_ids=[0, 3]), nn.parallel.data_parallel(module, inputs, ...).
//
// Run:  07_wrap_model [--devices 4] [--batch 512] [--device auto|cpu|cuda] [--fast]
//
// Expected output (abridged; shares differ):
//     (module): Linear(in_features=10, out_features=1, bias=True)
//   check: the functional form against one device: largest difference 0, tolerance 1e-06 ... ok
//   error: [load_state_dict] Error(s) in loading state_dict for Linear: Missing key(s) ...
//             computing   copying   sent per step   peak memory
//   cpu:0        62.5 %     6.9 %       13.52 MB      18.45 MB

#include "engine/autograd/ops/ops.h"
#include "engine/nn/layers.h"
#include "engine/nn/mlp.h"
#include "engine/nn/state_dict.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/data_parallel/data_parallel.h"
#include "engine/runtime/logical_device.h"
#include "engine/trace/breakdown.h"
#include "engine/trace/counters.h"
#include "engine/trace/recorder.h"
#include "tutorials/common.h"
#include "tutorials/rows.h"

namespace {
using namespace lockstep;
using parallel::DataParallel;
using parallel::DataParallelOptions;
constexpr const char* kModel = "mlp:64-1024-1024-10";

std::shared_ptr<nn::Module> make_linear() {
  Rng rng(/*seed=*/0);
  return std::make_shared<nn::Linear>(10, 1, rng);
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
               count(devices[d]) == before[d] ? "stayed idle" : "has worked");
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
  Rng rng(1);
  const Variable x(Tensor::uniform({30, 10}, -1, 1, rng, DType::float32, devices[0]));
  const Tensor expected = (*net)(x).value();
  tutorial::step(2, "30 rows on device_ids {0, 3}");
  Variable y;
  watch(devices, [&] { y = wrapped(x); });
  fmt::print("output {} on {}\n", to_string(y.shape()), to_string(y.device()));
  tutorial::check_close("the wrapper against one device", y.value(), expected, 1e-6);
  y = parallel::data_parallel(net, x, first_and_last);
  tutorial::check_close("the functional form against one device", y.value(), expected, 1e-6);
}

void show_errors(const std::vector<Device>& devices) {
  tutorial::step(3, "all tensors must be on devices[0]");
  const auto net = make_linear();
  net->to(devices[1]);
  const Variable x(Tensor::full({4, 10}, 1.0, DType::float32, devices[0]));
  DataParallel wrapped(net, {.devices = devices});
  tutorial::say("error: " + tutorial::expect_error([&] { wrapped(x); }), 7);
  fmt::print(
      "Replicas are copied from the first device of the list, so the parameters must be there.\n"
      "The input may be anywhere: scatter copies it. The way out:\n"
      "  net->to(devices[0]);  then wrapped(x) gives ");
  net->to(devices[0]);
  fmt::print("{}\n", to_string(wrapped(x).shape()));
  tutorial::step(4, "save the wrapped model, load a bare one");
  const nn::StateDict saved = nn::state_dict(wrapped);
  for (const auto& [name, tensor] : saved) fmt::print("  {} {}\n", name, describe(tensor));
  Rng other_seed(7);
  nn::Linear bare(10, 1, other_seed);
  tutorial::say("error: " + tutorial::expect_error([&] { load_state_dict(bare, saved); }), 7);
  fmt::print("Way out 1, recommended: save the inner module. The file then suits any model.\n");
  nn::load_state_dict(bare, nn::state_dict(*wrapped.module()));
  tutorial::check_close("weights of the bare model", tutorial::max_abs_difference(bare, *net), 0);
  fmt::print("Way out 2: wrap the new model before loading.\n");
  const auto fresh = std::make_shared<nn::Linear>(10, 1, other_seed);
  DataParallel wrapped_again(fresh, {.devices = devices});
  nn::load_state_dict(wrapped_again, saved);
  tutorial::check_close("weights of the wrapped one", tutorial::max_abs_difference(*fresh, *net),
                        0);
}

// Trains net's parameters on the first rows of the digits, always the same batch.
void train(nn::Module& net, const tutorial::Rows& batch, std::size_t num_steps) {
  optim::Sgd sgd(net.parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  for (std::size_t step = 0; step < num_steps; ++step) {
    const trace::ScopedSpan span(trace::Lane::host, trace::Category::step, "step");
    sgd.zero_grad();
    const Variable logits = net(Variable(batch.x));  // scatter, replicate, parallel apply, gather
    const Variable loss = cross_entropy(logits, batch.labels);  // on device 0 only
    loss.backward();  // sums the replicas' gradients on device 0
    sgd.step();       // on device 0 only
  }
}

// What DataParallel costs, device by device. Returns what a learner takes home.
std::string measure(const std::vector<Device>& devices, std::size_t rows, std::size_t num_steps) {
  const tutorial::Rows batch = tutorial::load_digits(devices[0]).part(0, rows);
  const auto one = nn::make_mlp(kModel, /*seed=*/0), net = nn::make_mlp(kModel, /*seed=*/0);
  one->to(devices[0]);
  train(*one, batch, num_steps);
  one->to({DeviceType::cpu, 63});  // off the devices whose memory is measured now
  net->to(devices[0]);
  DataParallel wrapped(net, {.devices = devices});
  for (const Device device : devices) runtime::logical_device(device).memory().reset_peak();
  const trace::TrackScope track(devices[0].index);
  trace::reset_collective_counts();
  trace::start();
  train(wrapped, batch, num_steps);
  trace::stop();
  tutorial::check_close(fmt::format("weights after {} steps against one device", num_steps),
                        tutorial::max_abs_difference(*net, *one),
                        tutorial::weight_tolerance(num_steps));
  trace::Recording recording = trace::collect();
  std::erase_if(recording.spans, [](auto& s) { return s.thread == trace::kDeviceThread; });
  const trace::Interval all{recording.spans.front().begin_ns, recording.spans.back().end_ns};
  const double total = static_cast<double>(all.end_ns - all.begin_ns);
  fmt::print(
      "computing: the share of the time in which a device computes\n"
      "copying: the share in which it copies to others (device 0 also fetches their gradients)\n"
      "sent per step: the bytes that go from it to other devices in a step\n"
      "peak memory: the most bytes of its memory in use at once\n"
      "          computing   copying   sent per step   peak memory\n");
  std::vector<double> computing, sent, held;  // per cent, MB, MB
  for (const Device device : devices) {
    const auto share = [&](trace::Lane lane) {
      const auto busy = trace::busy_time(recording.spans, device.index, lane, all);
      return 100 * static_cast<double>(trace::total_ns(busy)) / total;
    };
    const auto memory = runtime::logical_device(device).memory().statistics();
    computing.push_back(share(trace::Lane::compute));
    sent.push_back(1e-6 * double(trace::collective_bytes_of(device.index) / num_steps));
    held.push_back(1e-6 * static_cast<double>(memory.peak_bytes));
    fmt::print("{:<8} {:>8.1f} % {:>7.1f} % {:>11.2f} MB {:>10.2f} MB\n", to_string(device),
               computing.back(), share(trace::Lane::copy), sent.back(), held.back());
  }
  tutorial::check("device 0 sends and holds the most", sent[0] > sent[1] && held[0] > held[1]);
  if (devices[0].type == DeviceType::cuda) {
    fmt::print(
        "computing: here the thread that launches the GPU's kernels, which run later.\n"
        "peak memory: with 32 MiB in which cuBLASLt works.\n");
  }
  tutorial::say(
      "Device 0 also copies the parameters out, gathers the outputs, computes the loss, adds up "
      "all "
      "gradients and updates. Meanwhile the others wait: one reason why GPUs under DataParallel "
      "are "
      "often seen at 40 to 50 %.");
  tutorial::note_sharing(devices);
  return fmt::format(
      "In one line it splits every batch, copies the model, gathers the outputs and sums the "
      "gradients. Device 0 pays: it sent {:.1f} MB per step (device 1: {:.1f}), held {:.1f} MB "
      "({:.1f}), and works alone at times: device 1 was computing {:.0f} % of the time.",
      sent[0], sent[1], held[0], held[1], computing[1]);
}

void run(const tutorial::Options& options, std::size_t num_rows) {
  const std::vector<Device> devices = options.devices(options.num_devices);
  show_devices(options.devices(4));
  show_errors(options.devices(4));
  tutorial::step(5, "train: what device 0 does more than the others");
  tutorial::answer(
      measure(devices, num_rows, options.fast ? 10 : 50),
      {{"--devices 8", "Device 0 has twice as many to serve: it sends 7 copies of the model."},
       {"--batch 1500", "More rows to compute for the same parameters: the others wait less."}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  std::size_t num_rows = 512;
  const auto add_flags = [&](Flags& flags, Options& options) {
    flags.add_number("--devices", options.num_devices, 4, 16, "for step 5");
    flags.add_number("--batch", num_rows, 16, 1500, "rows per step of step 5");
  };
  return run_main(argc, argv,
                  "What does the DataParallel wrapper do for you, and what does it cost?",
                  [&](const Options& options) { run(options, num_rows); }, {4, add_flags});
}
