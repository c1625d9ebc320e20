// Which statements of well-known texts hold, and which of their mistakes does an engine catch?
//
// Texts on several GPUs say that all devices are used by default; they wrap a model before they
// move it, wrap it twice, leave it on another device, or count in a member of the model. Each step
// here tries one of these, prints what comes of it, and the way out of what goes wrong.
// docs/from-the-texts.md says which text says what, and shows what this prints.
//
// Run:  check_texts [--device auto|cpu|cuda] [--fast]

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/autograd/ops/ops.h"
#include "engine/nn/layers.h"
#include "engine/parallel/data_parallel/data_parallel.h"
#include "engine/parallel/ddp/ddp.h"
#include "engine/runtime/logical_device.h"
#include "tutorials/common.h"

namespace {

using namespace lockstep;
using parallel::data_parallel;
using parallel::DataParallel;
using parallel::Ddp;

std::shared_ptr<nn::Module> make_linear(Device device) {
  manual_seed(0);
  const auto linear = std::make_shared<nn::Linear>(/*in=*/10, /*out=*/5);
  linear->to(device);
  return linear;
}

Variable make_rows(Device device) {
  return Variable(Tensor::full({20, 10}, 1.0, DType::float32, device));
}

// "By default all GPUs that exist are used."
void use_defaults(const std::vector<Device>& devices) {
  tutorial::step(1, "device_ids is left out");
  const DataParallel wrapped(make_linear(devices[0]));
  const std::size_t count = wrapped.options().devices.size();
  const bool is_cpu = devices[0].type == DeviceType::cpu;
  const std::size_t there = is_cpu
                                ? std::min<std::size_t>(runtime::num_cores(), 64)
                                : static_cast<std::size_t>(runtime::num_devices(devices[0].type));
  fmt::print("DataParallel(net) takes {}, the first is {}\n", count,
             to_string(wrapped.options().devices[0]));
  tutorial::check("without device_ids it takes all devices (for the CPU: one per core)",
                  count == there);
}

// One text saw the error with nn.DataParallel and not with nn.parallel.data_parallel. Both need the
// parameters on the first device, and both say so.
void leave_elsewhere(const std::vector<Device>& devices) {
  tutorial::step(2, "the parameters are not on device_ids[0]");
  const auto net = make_linear(devices[1]);
  const Variable rows = make_rows(devices[0]);
  DataParallel wrapped(net, {.devices = devices});
  const std::string of_wrapper = tutorial::show_error([&] { wrapped(rows); });
  const std::string of_function =
      tutorial::expect_error([&] { data_parallel(net, rows, {.devices = devices}); });
  tutorial::check("the functional form asks for the same as the wrapper",
                  of_function == of_wrapper);
  net->to(devices[0]);
  tutorial::check("wrapped first and moved then, as one text does it, DataParallel works",
                  wrapped(rows).shape() == Shape{20, 5});
}

void wrap_twice(const std::vector<Device>& devices) {
  tutorial::step(3, "wrapped twice");
  const auto net = make_linear(devices[0]);
  const auto wrapped =
      std::make_shared<DataParallel>(net, parallel::DataParallelOptions{.devices = devices});
  tutorial::show_error([&] { DataParallel twice(wrapped, {.devices = devices}); });
  const Variable rows = make_rows(devices[0]);
  const Variable output = data_parallel(wrapped, rows, {.devices = devices});
  tutorial::check_close("the functional form takes a wrapped module for the module inside",
                        output.value(), (*net)(rows).value(), 1e-6);
}

// DDP's buckets are memory of the device on which the module was wrapped.
void move_after_wrapping(const std::vector<Device>& devices) {
  tutorial::step(4, "wrapped in DDP, and moved then");
  bool is_trained = false;
  tutorial::on_ranks({devices[0]}, [&](comm::Communicator& group, std::size_t, Device) {
    const auto net = make_linear(devices[0]);
    {
      Ddp wrapped(net, group);
      net->to(devices[1]);
      tutorial::show_error([&] { wrapped(make_rows(devices[1])); });
    }
    fmt::print("The way out: net->to(device) first, then Ddp(net, group).\n");
    Ddp again(net, group);
    sum(again(make_rows(devices[1]))).backward();
    is_trained = net->parameters()[0].grad().device() == devices[1];
  });
  tutorial::check("a rank that is wrapped after the move trains", is_trained);
}

// Counts the calls of its forward() in a plain member.
class Counting final : public nn::ModuleOf<Counting> {
 public:
  explicit Counting(Device device) { register_child("fc", make_linear(device)); }
  Variable forward(const Variable& input) override {
    ++num_calls;
    return (*children()[0].second)(input);
  }
  std::string type_name() const override { return "Counting"; }

  int num_calls = 0;
};

// A replica is a copy that lives for one forward pass. "Attributes should be read-only."
void write_member(const std::vector<Device>& devices) {
  tutorial::step(5, "forward() writes into a member of the model");
  const auto net = std::make_shared<Counting>(devices[0]);
  const Variable rows = make_rows(devices[0]);
  (*net)(rows);
  fmt::print("a forward pass on one device: the model has counted {} call\n", net->num_calls);
  const int before = net->num_calls;
  DataParallel wrapped(net, {.devices = devices});
  wrapped(rows);
  fmt::print("a forward pass on {} devices: the model has counted {} calls\n", devices.size(),
             net->num_calls - before);
  tutorial::check("what replicas write into members of their own is lost",
                  before == 1 && net->num_calls == before);
  fmt::print("The way out: keep it in a buffer (replica 0's is kept), or return it.\n");
}

void run(const tutorial::Options& options) {
  const std::vector<Device> devices = options.devices(4);
  use_defaults(devices);
  leave_elsewhere(devices);
  wrap_twice(devices);
  move_after_wrapping(devices);
  write_member(devices);
  tutorial::answer(
      "Of 4 mistakes, 3 are errors that name what was found and the way out: parameters that are "
      "not on device_ids[0], a model wrapped twice, one moved after Ddp wrapped it. What forward() "
      "writes into a member of a replica is lost silently.",
      {{"--device cpu", "The same, with devices of the CPU."},
       {"--fast", "Nothing here takes long: the same."}});
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::tutorial::run_main(argc, argv,
                                      "Which statements of well-known texts hold, and which of "
                                      "their mistakes does an engine catch?",
                                      run, {.num_devices = 4});
}
