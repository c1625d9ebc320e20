// lockstep devices: lists the devices to train on, and who uses them now.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/core/error.h"
#include "engine/runtime/logical_device.h"
#include "kernels/image_calls.h"
#include "tools/commands/commands.h"
#include "tools/devices/gpu_list.h"
#include "tools/flags/command_line.h"
#include "tools/flags/numbers.h"
#include "tools/flags/output_path.h"
#include "tools/record/host_info.h"
#include "tools/record/run_file.h"
#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

struct DevicesFlags {
  std::string json_path;
  int free = 0;
};

// "2 logical devices on 1 GPU: cuda:0 to cuda:1", or the reason for none.
std::string cuda_text(const GpuList& list) {
  const nlohmann::ordered_json& problem = list.json["cuda_problem"];
  if (!problem.is_null()) return "none: " + problem.get<std::string>();
  const std::set<std::size_t> gpus(list.device_rows.begin(), list.device_rows.end());
  const std::size_t count = list.device_rows.size();
  return fmt::format("{} on {}: cuda:0{}", count_text(count, "logical device"),
                     count_text(gpus.size(), "GPU"),
                     count > 1 ? fmt::format(" to cuda:{}", count - 1) : "");
}

std::string driver_text(const nlohmann::ordered_json& machine) {
  const auto text = [&](const char* key) {
    return machine[key].is_null() ? "-" : machine[key].get<std::string>();
  };
  if (!machine["nvml_problem"].is_null()) return text("nvml_problem");
  return fmt::format("{}, for CUDA up to {}; NVML {}", text("driver"), text("newest_cuda"),
                     text("nvml"));
}

// "cpu    Intel ...", in lines that begin in the same column.
void print_line(std::FILE* out, const std::string& what, const std::string& text) {
  constexpr std::size_t kColumn = 7;
  fmt::print(out, "{:<{}}{}\n", what, kColumn, wrap(text, kTerminalColumns, kColumn));
}

void print_devices(const GpuList& list, std::FILE* out) {
  const nlohmann::ordered_json host = host_info();
  const std::size_t cores = runtime::num_cores();
  print_line(out, "cpu",
             fmt::format("{}, {}, {:.1f} GiB of memory", host["cpu"].get<std::string>(),
                         count_text(cores, "core"),
                         host["memory_bytes"].get<double>() / (std::size_t{1} << 30)));
  print_line(out, "",
             fmt::format("logical devices cpu:0 to cpu:{} exist on demand and share these cores",
                         runtime::kMaxCpuDevices - 1));
  print_line(out, "os", host["os"].get<std::string>());
  print_line(out, "cuda", cuda_text(list));
  if (list.json["cuda_problem"].is_null()) print_line(out, "conv", kernels::cuda_convolutions());
  print_line(out, "driver", driver_text(list.json));
  const std::string table = gpu_table(list.json);
  if (!table.empty()) fmt::print(out, "\n{}", table);
}

void run_devices(const DevicesFlags& flags, const CLI::App& command) {
  require_writable({{"--json", flags.json_path}});
  const GpuList list = list_gpus();
  if (command.count("--free") > 0) {
    const std::size_t count = require_positive("--free", flags.free);
    fmt::print("{}\n", fmt::join(idle_gpus(list, count), ","));
    return;
  }
  print_devices(list, flags.json_path == "-" ? stderr : stdout);
  if (flags.json_path.empty()) return;
  nlohmann::ordered_json json{{"schema", "lockstep.devices/1"}, {"host", host_info()}};
  json.update(list.json);
  write_json(flags.json_path, json);
}

}  // namespace

void add_devices_command(CLI::App& program) {
  auto flags = std::make_shared<DevicesFlags>();
  CLI::App& devices = *program.add_subcommand("devices", "List the devices of this machine");
  CLI::Option* const json = add_option(devices, "--json", flags->json_path, "FILE",
                                       "write the list here (-: standard output)");
  add_option(devices, "--free", flags->free, "N",
             "print only which N idle GPUs have the most free memory, for CUDA_VISIBLE_DEVICES")
      ->default_str("")
      ->excludes(json);
  devices.callback([flags, &devices] { run_devices(*flags, devices); });
}

}  // namespace lockstep::tools
