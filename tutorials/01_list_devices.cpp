// 01: What is a device, and what does it mean that a tensor is on one?
//
// You will see: how devices are named and which exist here; that each has memory of its own; that
// values get from one to another only by a copy you ask for; that an operation on tensors of two
// devices is an error; that rows of a batch are a view, not a copy; and what peak memory means.
// No model is trained. No GPU is needed: cpu:0, cpu:1, ... behave like separate devices.
//
// Run:  01_list_devices [--device auto|cpu|cuda] [--fast]
//
// Expected output (abridged; device lines as without a GPU):
//   "cuda" means cuda:0
//   [device] unknown device 'gpu:0'; use cpu, cuda, or one with an index such as cuda:1
//   after making batch                 cpu:0:   640 B   cpu:1:     0 B
//   with a [100, 10] on the second     cpu:0:   640 B   cpu:1:  4096 B
//   after that one is gone             cpu:0:   640 B   cpu:1:     0 B
//   check: changing a copy leaves the original alone ... ok
//   [add] all tensors must be on one device, found cpu:0 and cpu:1; move one with to(device)
//   batch.rows(10, 20) is Tensor[10, 5] float32 on cpu:0, and 0 more bytes are in use
//   check: writing to a view of rows 10 to 19 changes exactly these rows of the batch ... ok
//   run 1: now 4096 KiB, peak 12288 KiB, blocks asked of the system: 3
//   run 2: now 4096 KiB, peak 12288 KiB, blocks asked of the system: 0

#include <string>
#include <vector>

#include "engine/autograd/ops/ops.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/physical_gpus.h"
#include "tutorials/common.h"

namespace {

using namespace lockstep;

// A second device: index 1 where there is one, else the CPU (a machine with a single GPU).
Device second_device(const tutorial::Options& options) {
  if (runtime::num_devices(options.device_type) > 1) return {options.device_type, 1};
  return {DeviceType::cpu, 0};
}

runtime::MemoryPool& memory_of(Device device) {
  return runtime::logical_device(device).memory();
}

void print_memory(std::string_view when, Device first, Device second) {
  fmt::print("  {:<34} {}: {:>5} B   {}: {:>5} B\n", when, to_string(first),
             memory_of(first).statistics().current_bytes, to_string(second),
             memory_of(second).statistics().current_bytes);
}

// A device is named by its type and an index. A name is only text until something is put there.
void name_devices() {
  tutorial::step(1, "name a device");
  fmt::print("cpu devices:  {} (made when first named; all compute on the same cores)\n",
             runtime::num_devices(DeviceType::cpu));
  fmt::print("cuda devices: {}   (PyTorch: torch.cuda.device_count())\n",
             runtime::num_devices(DeviceType::cuda));
  for (const runtime::PhysicalGpu& gpu : runtime::physical_gpus()) {
    fmt::print("  GPU {}: {}, {:.0f} GiB, compute capability {}.{}\n", gpu.ordinal, gpu.name,
               static_cast<double>(gpu.memory_bytes) / (1 << 30), gpu.major, gpu.minor);
  }
  if (runtime::physical_gpus().empty()) fmt::print("  no GPU: {}\n", runtime::no_gpu_reason());
  for (const char* name : {"cpu", "cpu:3", "cuda", "cuda:1"}) {
    fmt::print("  \"{}\" means {}\n", name, to_string(parse_device(name)));
  }
  // PyTorch's torch.device("cuda" if torch.cuda.is_available() else "cpu") is no different:
  fmt::print("A name without an index is index 0 alone, however many GPUs the machine has.\n");
  fmt::print("To use several, each has to be named. What does not exist is an error:\n");
  const Device missing{DeviceType::cuda, runtime::num_devices(DeviceType::cuda)};
  fmt::print("  {}\n", tutorial::expect_error([&] { runtime::logical_device(missing); }));
  fmt::print("  {}\n", tutorial::expect_error([] { parse_device("gpu:0"); }));
}

// Each logical device has its own memory, threads and streams, also where several share the
// hardware. A program that keeps its devices apart here runs unchanged on as many GPUs.
Tensor fill_memory(Device first, Device second) {
  tutorial::step(2, "put tensors on devices");
  print_memory("at the start", first, second);
  const Tensor batch = Tensor::full({30, 5}, 1.0, DType::float32, first);
  fmt::print("  batch is {}: 30 * 5 * 4 = {} B\n", describe(batch), batch.num_bytes());
  print_memory("after making batch", first, second);
  {
    const Tensor other = Tensor::zeros({100, 10}, DType::float32, second);
    print_memory("with a [100, 10] on the second", first, second);
  }
  print_memory("after that one is gone", first, second);
  fmt::print("The pool hands out rounded sizes: 600 B occupy {} B, 4000 B occupied {} B.\n",
             memory_of(first).statistics().current_bytes,
             memory_of(second).statistics().peak_bytes);
  return batch;
}

// x.to(device), as in PyTorch: the same values in the other device's memory.
void copy_between_devices(const Tensor& batch, Device second) {
  tutorial::step(3, "copy between devices");
  const Tensor copy = batch.to(second);
  const Tensor same = batch.to(batch.device());
  fmt::print("  batch.to({}) is {}: a copy\n", to_string(second), describe(copy));
  fmt::print("  batch.to({}) shares batch's memory: {}\n", to_string(batch.device()),
             same.shares_memory_with(batch) ? "yes, it was there already" : "no");
  copy.fill(7);
  fmt::print("  the copy was filled with 7; batch still holds {}\n", batch.slice(0, {1}).item());
  tutorial::check("changing a copy leaves the original alone",
                  batch.slice(0, {1}).item() == 1 && copy.slice(0, {1}).item() == 7);
  Rng rng(0);
  const Tensor random = Tensor::normal({30, 5}, 0, 1, rng, DType::float32, batch.device());
  tutorial::check_close("values come back from the other device unchanged",
                        tutorial::max_abs_difference(random, random.to(second).to(batch.device())),
                        0);
}

// Nothing is copied behind your back: a copy costs time, so the program has to say it.
void mix_devices(const Tensor& batch, Device second) {
  tutorial::step(4, "use tensors of two devices in one operation");
  const Variable here(batch);
  const Variable there(batch.to(second));
  const std::string message = tutorial::expect_error([&] { add(here, there); });
  fmt::print("  add(here, there) fails:\n  {}\n", message);
  const Variable sum = add(here, to(there, batch.device()));
  fmt::print("  add(here, to(there, {})) works: 1 + 1 = {}\n", to_string(batch.device()),
             sum.value().slice(0, {1}).item());
  tutorial::check("the error names both devices",
                  message.find(to_string(batch.device())) != std::string::npos &&
                      message.find(to_string(second)) != std::string::npos);
}

// Rows lie one behind the other in memory, so a range of rows is a piece of the same block. That is
// how a batch is cut for several devices (tutorial 04): the first shard costs nothing.
void view_rows(const Tensor& batch) {
  tutorial::step(5, "take rows: a view, not a copy");
  const std::size_t bytes_before = memory_of(batch.device()).statistics().current_bytes;
  const Tensor shard = batch.rows(10, 20);
  fmt::print("  batch.rows(10, 20) is {}, and {} more bytes are in use\n", describe(shard),
             memory_of(batch.device()).statistics().current_bytes - bytes_before);
  const Tensor clone = shard.clone();
  shard.fill(5);
  const std::vector<float> values = batch.to_vector<float>();
  fmt::print("  the view was filled with 5; first element of rows 9, 10, 19, 20 of batch: {}\n",
             fmt::format("{} {} {} {}", values[45], values[50], values[95], values[100]));
  tutorial::check("writing to a view of rows 10 to 19 changes exactly these rows of the batch",
                  values[49] == 1 && values[50] == 5 && values[99] == 5 && values[100] == 1);
  tutorial::check("a clone made before keeps the old values", clone.slice(0, {1}).item() == 1);
}

// Peak memory decides whether a model fits. PyTorch: torch.cuda.max_memory_allocated().
void measure_peak(Device device) {
  constexpr std::size_t kRows = 4096;
  tutorial::step(6, "measure peak memory");
  const auto square_twice = [&] {
    const Variable x(Tensor::full({kRows, 256}, 2.0, DType::float32, device));
    const Variable squared = multiply(x, x);
    return multiply(squared, squared);  // x, squared and the result are alive at the same time
  };
  const std::size_t tensor_bytes = kRows * 256 * 4;
  runtime::MemoryPool& memory = memory_of(device);
  std::size_t taken_before = memory.statistics().num_system_allocations;
  const std::size_t base_bytes = memory.statistics().current_bytes;
  for (int run = 1; run <= 2; ++run) {
    memory.reset_peak();
    const Variable result = square_twice();
    const runtime::MemoryStatistics now = memory.statistics();
    fmt::print("  run {}: now {} KiB, peak {} KiB, blocks asked of the system: {}\n", run,
               (now.current_bytes - base_bytes) / 1024, (now.peak_bytes - base_bytes) / 1024,
               now.num_system_allocations - taken_before);
    taken_before = now.num_system_allocations;
    tutorial::check("at the peak three tensors are alive, afterwards one",
                    now.peak_bytes - base_bytes == 3 * tensor_bytes &&
                        now.current_bytes - base_bytes == tensor_bytes);
  }
  fmt::print(
      "The device's pool keeps freed blocks, so the second run takes none from the system.\n");
}

void run(const tutorial::Options& options) {
  const Device first = options.device();
  const Device second = second_device(options);
  name_devices();
  const Tensor batch = fill_memory(first, second);
  copy_between_devices(batch, second);
  mix_devices(batch, second);
  view_rows(batch);
  measure_peak(first);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::tutorial::run_main(
      argc, argv, "What is a device, and what does it mean that a tensor is on one?", run);
}
