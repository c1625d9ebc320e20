// lockstep devices: lists the devices to train on, and who uses them now.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/runtime/logical_device.h"
#include "tools/cli/command_line.h"
#include "tools/cli/numbers.h"
#include "tools/cli/output_path.h"
#include "tools/commands.h"
#include "tools/devices/gpu_list.h"
#include "tools/devices/gpu_table.h"
#include "tools/report/host_info.h"
#include "tools/report/row_table.h"
#include "tools/report/run_file.h"

namespace lockstep::tools {
namespace {

struct DevicesFlags {
  std::string json_path;
  int free = 0;
};

// "2 devices, cuda:0 and on, on 1 GPU", or the reason for none.
std::string cuda_text(const GpuList& list) {
  if (!list.cuda_problem.empty()) return "none: " + list.cuda_problem;
  std::size_t num_gpus = 0;
  for (const GpuRow& row : list.rows) num_gpus += row.logical_ids.empty() ? 0 : 1;
  const std::size_t count = list.device_rows.size();
  return fmt::format("{} on {}: cuda:0{}", count_text(count, "logical device"),
                     count_text(num_gpus, "GPU"),
                     count > 1 ? fmt::format(" to cuda:{}", count - 1) : "");
}

std::string driver_text(const GpuList& list) {
  const MachineGpus& machine = list.machine;
  if (!machine.problem.empty()) return machine.problem;
  const auto or_dash = [](const std::string& text) { return text.empty() ? "-" : text; };
  return fmt::format("{}, for CUDA up to {}; NVML {}", or_dash(machine.driver),
                     or_dash(machine.newest_cuda), or_dash(machine.nvml));
}

void print_devices(const GpuList& list, std::FILE* out) {
  const nlohmann::ordered_json host = host_info();
  const std::size_t cores = runtime::num_cores();
  fmt::print(out, "cpu    {}, {}, {:.1f} GiB of memory\n", host["cpu"].get<std::string>(),
             count_text(cores, "core"),
             host["memory_bytes"].get<double>() / (std::size_t{1} << 30));
  fmt::print(out, "       logical devices cpu:0 to cpu:{} exist on demand and share these cores\n",
             runtime::kMaxCpuDevices - 1);
  fmt::print(out, "os     {}\n", host["os"].get<std::string>());
  fmt::print(out, "cuda   {}\n", cuda_text(list));
  fmt::print(out, "driver {}\n", driver_text(list));
  const std::string table = gpu_table(list);
  if (!table.empty()) fmt::print(out, "\n{}", table);
}

// Prints only the ids on standard output, for $(...).
void print_free(const GpuList& list, const DevicesFlags& flags) {
  const std::size_t count = require_positive("--free", flags.free);
  const std::vector<std::size_t> ids = pick_devices(list, count);
  if (!list.cuda_problem.empty()) {
    fmt::print(
        stderr,
        "lockstep: numbers are for programs with CUDA and CUDA_DEVICE_ORDER=PCI_BUS_ID: {}\n",
        list.cuda_problem);
  }
  fmt::print("{}\n", fmt::join(ids, ","));
}

void run_devices(const DevicesFlags& flags, const CLI::App& command) {
  require_writable({{"--json", flags.json_path}});
  const GpuList list = list_gpus();
  if (command.count("--free") > 0) return print_free(list, flags);
  print_devices(list, flags.json_path == "-" ? stderr : stdout);
  if (flags.json_path.empty()) return;
  nlohmann::ordered_json json{{"schema", "lockstep.devices/1"}, {"host", host_info()}};
  json.update(gpu_json(list));
  write_json(flags.json_path, json);
}

}  // namespace

void add_devices_command(CLI::App& program) {
  auto flags = std::make_shared<DevicesFlags>();
  CLI::App& devices = *program.add_subcommand("devices", "List the devices of this machine");
  CLI::Option* const json =
      devices.add_option("--json", flags->json_path, "write the list here (-: standard output)");
  devices
      .add_option("--free", flags->free,
                  "print the ids of the N devices with the most free memory, such as 2,0")
      ->excludes(json);
  devices.callback([flags, &devices] { run_devices(*flags, devices); });
}

}  // namespace lockstep::tools
