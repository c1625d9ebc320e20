// lockstep devices: what there is to train on.
#include <fmt/format.h>

#include "engine/runtime/logical_device.h"
#include "tools/commands.h"
#include "tools/report/host_info.h"

namespace lockstep::tools {
namespace {

void run_devices() {
  const nlohmann::ordered_json host = host_info();
  const std::size_t cores = runtime::num_cores();
  fmt::print("cpu    {}, {} {}, {:.1f} GiB of memory\n", host["cpu"].get<std::string>(), cores,
             cores == 1 ? "core" : "cores",
             host["memory_bytes"].get<double>() / (std::size_t{1} << 30));
  fmt::print("       logical devices cpu:0 to cpu:{} exist on demand and share these cores\n",
             runtime::kMaxCpuDevices - 1);
  if (runtime::num_devices(DeviceType::cuda) == 0)
    fmt::print("cuda   none: this build has no CUDA\n");
  fmt::print("os     {}\n", host["os"].get<std::string>());
}

}  // namespace

void add_devices_command(CLI::App& app) {
  app.add_subcommand("devices", "List the devices of this machine")->callback(run_devices);
}

}  // namespace lockstep::tools
