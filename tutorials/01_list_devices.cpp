// 01: What is a device, and what does it mean that a tensor is on one?
//
// A device is a place to compute with memory of its own. A tensor lies in the memory of one device,
// and an operation wants all its tensors in the same, because none can reach into another's. So
// what several devices do together begins with copies that you ask for, and each costs time.
//
// You will see: how devices are named and which exist here; that each has memory of its own; that
// values get from one to another only by a copy you ask for; that an operation on tensors of two
// devices is an error; that rows of a batch are a view, not a copy; and what peak memory means.
// No model is trained. No GPU is needed: cpu:0, cpu:1, ... behave like separate devices.
//
// Run:  01_list_devices [--second cpu:5] [--mib 4] [--device auto|cpu|cuda] [--fast]
//
// Expected output with --fast: tutorials/expected/01.txt

#include <string>
#include <vector>

#include "engine/autograd/ops/ops.h"
#include "engine/core/error.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/physical_gpus.h"
#include "tutorials/common.h"

namespace {

using namespace lockstep;

runtime::MemoryPool& memory_of(Device device) {
  return runtime::logical_device(device).memory();
}

std::size_t bytes_in_use(Device device) {
  return memory_of(device).statistics().current_bytes;
}

void print_memory(std::string_view when, Device first, Device second) {
  fmt::print("  {:<34} {}: {:>5} B   {}: {:>5} B\n", when, to_string(first), bytes_in_use(first),
             to_string(second), bytes_in_use(second));
}

// A device is named by its type and an index. A name is only text until something is put there.
void name_devices() {
  tutorial::step(1, "name a device");
  fmt::print("cpu devices:  {} (each exists once you name it; all compute on the same cores)\n",
             runtime::num_devices(DeviceType::cpu));
  fmt::print("cuda devices: {} (on {} GPUs; PyTorch: torch.cuda.device_count())\n",
             runtime::num_devices(DeviceType::cuda), runtime::physical_gpus().size());
  for (const runtime::PhysicalGpu& gpu : runtime::physical_gpus()) {
    fmt::print("  GPU {}: {}, {} GiB\n", gpu.ordinal, gpu.name, gpu.memory_bytes >> 30);
  }
  if (runtime::physical_gpus().empty()) tutorial::say("  no GPU: " + runtime::no_gpu_reason(), 4);
  for (const char* name : {"cpu", "cpu:3", "cuda", "cuda:1"}) {
    fmt::print("  \"{}\" means {}\n", name, to_string(parse_device(name)));
  }
  // PyTorch's torch.device("cuda" if torch.cuda.is_available() else "cpu") works the same way:
  fmt::print(
      "A name without an index means index 0 alone, however many GPUs there are.\n"
      "To use several, name each of them. A device that does not exist is an error:\n");
  const Device missing{DeviceType::cuda, runtime::num_devices(DeviceType::cuda)};
  tutorial::show_error([&] { runtime::logical_device(missing); });
  tutorial::show_error([] { parse_device("gpu:0"); });
}

// Each logical device has its own memory, threads and streams, also where several share the
// hardware. A program that keeps its devices apart here runs unchanged on as many GPUs.
Tensor fill_memory(Device first, Device second) {
  tutorial::step(2, "put tensors on devices, and count the bytes in use on each");
  print_memory("at the start", first, second);
  const Tensor batch = Tensor::full({30, 5}, 1.0, DType::float32, first);
  fmt::print("  batch is {}: 30 * 5 * 4 = {} B\n", describe(batch), batch.num_bytes());
  print_memory("after making batch", first, second);
  {
    const Tensor other = Tensor::zeros({100, 10}, DType::float32, second);
    print_memory(fmt::format("with a [100, 10] tensor on {}", to_string(second)), first, second);
  }
  print_memory("after freeing that tensor", first, second);
  fmt::print("Sizes are rounded up: 600 B take {} B, 4000 B took {} B.\n", bytes_in_use(first),
             memory_of(second).statistics().peak_bytes);
  return batch;
}

// x.to(device), as in PyTorch: the same values in the other device's memory.
void copy_between_devices(const Tensor& batch, Device second) {
  tutorial::step(3, "copy between devices");
  const Tensor copy = batch.to(second);
  const bool is_same = batch.to(batch.device()).shares_memory_with(batch);
  fmt::print("  batch.to({}) is {}: a copy\n  batch.to({}) is {}\n", to_string(second),
             describe(copy), to_string(batch.device()), is_same ? "batch itself" : "a copy");
  copy.fill(7);
  fmt::print("  the copy was filled with 7; batch still holds {}\n", batch.slice(0, {1})[0]);
  tutorial::check("changing a copy leaves the original alone",
                  batch.slice(0, {1})[0] == 1 && copy.slice(0, {1})[0] == 7);
  tutorial::check_close("values come back from the other device unchanged",
                        tutorial::max_abs_difference(batch, batch.to(second).to(batch.device())),
                        0);
}

// Nothing is copied behind your back: a copy costs time, so the program has to say it.
void mix_devices(const Tensor& batch, Device second) {
  tutorial::step(4, "use tensors of two devices in one operation");
  const Variable here(batch);
  const Variable there(batch.to(second));
  fmt::print("  add(here, there) fails:\n");
  const std::string message = tutorial::show_error([&] { add(here, there); });
  const Variable sum = add(here, to(there, batch.device()));
  fmt::print("  add(here, to(there, {})) works: 1 + 1 = {}\n", to_string(batch.device()),
             sum.value().slice(0, {1})[0]);
  tutorial::check("the error names both devices",
                  message.find(to_string(batch.device())) != std::string::npos &&
                      message.find(to_string(second)) != std::string::npos);
}

// Rows lie one behind the other in memory, so a range of rows is a piece of the same block. That is
// how a batch is cut for several devices (tutorial 04): the first shard costs nothing.
void view_rows(const Tensor& batch) {
  tutorial::step(5, "take rows: a view, not a copy");
  const std::size_t bytes_before = bytes_in_use(batch.device());
  const Tensor shard = batch.rows(10, 20);
  fmt::print("  batch.rows(10, 20) is {}; {} more bytes in use\n", describe(shard),
             bytes_in_use(batch.device()) - bytes_before);
  shard.fill(5);
  const std::vector<float> values = batch.to_vector<float>();
  fmt::print("  the view was filled with 5; rows 9, 10, 19, 20 of batch begin: {} {} {} {}\n",
             values[45], values[50], values[95], values[100]);
  tutorial::check("writing to a view of rows 10 to 19 changes exactly these rows of the batch",
                  values[49] == 1 && values[50] == 5 && values[99] == 5 && values[100] == 1);
}

// Peak memory decides whether a model fits. PyTorch: torch.cuda.max_memory_allocated().
// Returns the peak in MiB.
std::size_t measure_peak(Device device, int mib) {
  tutorial::step(6, "measure peak memory: the most bytes that were in use at once");
  fmt::print("x has {} MiB; then x * x; then the square of that\n", mib);
  const auto square_twice = [&] {
    const Variable x(Tensor::full({std::size_t{1024} * mib, 256}, 2.0, DType::float32, device));
    const Variable squared = multiply(x, x);
    return multiply(squared, squared);  // x, squared and the result are alive at once
  };
  runtime::MemoryPool& memory = memory_of(device);
  const std::size_t bytes_before = memory.statistics().current_bytes;
  std::size_t peak_bytes = 0;
  for (int run = 1; run <= 2; ++run) {
    memory.reset_peak();
    const std::size_t taken_before = memory.statistics().num_system_allocations;
    const Variable result = square_twice();
    const runtime::MemoryStatistics now = memory.statistics();
    const std::size_t bytes = now.current_bytes - bytes_before;
    peak_bytes = now.peak_bytes - bytes_before;
    fmt::print("  run {}: now {} MiB, peak {} MiB, blocks requested from the system: {}\n", run,
               bytes >> 20, peak_bytes >> 20, now.num_system_allocations - taken_before);
    tutorial::check("at the peak three tensors are alive, afterwards one",
                    peak_bytes == 3 * bytes && bytes >> 20 >= std::size_t{1} * mib);
    if (run == 1) continue;
    tutorial::check("the device keeps freed blocks, so the second run requests none",
                    now.num_system_allocations == taken_before);
  }
  return peak_bytes >> 20;
}

void run(const tutorial::Options& options, const std::string& second_name, int mib) {
  const Device first = options.device();
  const Device second = second_name.empty() ? options.devices(2)[1] : parse_device(second_name);
  require(second != first, ErrorCode::Usage, "--second", "{} is the first device", second_name);
  name_devices();
  const Tensor batch = fill_memory(first, second);
  const std::size_t batch_bytes = bytes_in_use(first);
  copy_between_devices(batch, second);
  mix_devices(batch, second);
  view_rows(batch);
  const std::size_t peak_mib = measure_peak(first, mib);
  tutorial::answer(
      fmt::format("A device is a place to compute with memory of its own. The batch took {0} B on "
                  "{1} and none on {2}: it gets there only if you copy it, and no operation mixes "
                  "the two devices. Three tensors at once made a peak of {3} MiB.",
                  batch_bytes, to_string(first), to_string(second), peak_mib),
      {{"--second cpu:5", "The same with cpu:5: naming a device is enough to use it."},
       {"--mib 16", "Tensors four times as large make four times the peak: 48 MiB."}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  std::string second;
  int mib = 4;
  const auto add_flags = [&](Flags& flags, Options&) {
    flags.add_text("--second", second, "the second device (default: index 1)");
    flags.add_number("--mib", mib, 1, 256, "size of the tensors of step 6");
  };
  return run_main(argc, argv, "What is a device, and what does it mean that a tensor is on one?",
                  [&](const Options& options) { run(options, second, mib); },
                  {.num_devices = 2, .add_flags = add_flags});
}
