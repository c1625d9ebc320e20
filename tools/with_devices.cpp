// lockstep with-devices N -- COMMAND: waits for N idle GPUs, locks them, and runs the command on
// them.
//
// scripts/with_devices.sh does the work. The script replaces this program and the command replaces
// the script, so the command has its process number, its terminal, every signal sent to it and its
// exit code.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>
#include <memory>

#include "engine/core/error.h"
#include "engine/launch/process.h"
#include "tools/cli/command_line.h"
#include "tools/cli/numbers.h"
#include "tools/cli/processes.h"
#include "tools/commands.h"
#include "tools/devices/gpu_list.h"
#include "tools/report/row_table.h"
#include "tools/with_devices_script.h"

namespace lockstep::tools {
namespace {

constexpr const char* kName = "with-devices";

struct WithDevicesFlags {
  int count = 0;
  double timeout_seconds = std::numeric_limits<double>::infinity();
  double max_used_mib = 512;  // a desktop's windows need some
  double max_utilization_percent = 5;
};

// The UUIDs of the GPUs that CUDA_VISIBLE_DEVICES leaves. A slice does not count as its GPU: the
// command must not get more than the variable grants.
std::vector<std::string> visible_gpus(std::size_t count) {
  const GpuList found = list_gpus();
  const nlohmann::ordered_json& list = found.json;
  const nlohmann::ordered_json& problem = list["nvml_problem"];
  require(problem.is_null(), ErrorCode::Device, kName, "cannot find out which GPUs are idle: {}",
          problem.is_null() ? "" : problem.get<std::string>());
  std::vector<std::string> uuids;
  for (const nlohmann::ordered_json& gpu : list["gpus"]) {
    if (!found.is_slice && gpu["visible"] && !gpu["uuid"].is_null()) uuids.push_back(gpu["uuid"]);
  }
  const nlohmann::ordered_json& notes = list["notes"];
  require(count <= uuids.size(), ErrorCode::Usage, kName, "asks for {}, and there {} {}{}",
          count_text(count, "GPU"), uuids.size() == 1 ? "is" : "are", uuids.size(),
          notes.empty() ? "" : "; " + notes[0].get<std::string>());
  return uuids;
}

void run_with_devices(const WithDevicesFlags& flags, const CommandLine& job) {
  const std::size_t count = require_positive(kName, flags.count);
  if (!std::isinf(flags.timeout_seconds)) require_not_negative("--timeout", flags.timeout_seconds);
  require_not_negative("--max-used-mib", flags.max_used_mib);
  require_not_negative("--max-utilization", flags.max_utilization_percent);
  require(!job.empty(), ErrorCode::Usage, kName,
          "say what to run: lockstep with-devices 2 -- COMMAND ARGUMENTS");
  launch::find_program(job[0], launch::current_environment(), kName);
  CommandLine words{"bash",
                    "-c",
                    kWithDevicesScript,
                    "with_devices.sh",
                    fmt::format("{}", count),
                    fmt::format("{:g}", flags.timeout_seconds),
                    fmt::format("{:.0f}", std::floor(flags.max_used_mib)),
                    fmt::format("{:.0f}", std::floor(flags.max_utilization_percent)),
                    fmt::format("{}", fmt::join(visible_gpus(count), " "))};
  words.insert(words.end(), job.begin(), job.end());
  become(kName, words);
}

}  // namespace

void add_with_devices_command(CLI::App& program, const CommandLine& command) {
  auto flags = std::make_shared<WithDevicesFlags>();
  CLI::App& with_devices =
      *program.add_subcommand(kName, "Wait for N idle GPUs, lock them, and run a command on them");
  with_devices.add_option("N", flags->count, "how many GPUs to wait for")->required();
  with_devices.add_option("--timeout", flags->timeout_seconds, "seconds to wait (inf: for ever)");
  with_devices.add_option("--max-used-mib", flags->max_used_mib,
                          "a GPU that has more memory in use is busy");
  with_devices.add_option("--max-utilization", flags->max_utilization_percent,
                          "a GPU whose utilisation is more percent is busy");
  with_devices.footer(
      "Then comes -- and the command with its arguments:\n  lockstep with-devices 2 -- python "
      "train.py");
  const CommandLine job = words_behind_dashes(command);
  with_devices.callback([flags, job] { run_with_devices(*flags, job); });
}

}  // namespace lockstep::tools
