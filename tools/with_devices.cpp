// lockstep with-devices N -- COMMAND: waits for N idle GPUs, locks them, and runs the command on
// them.
//
// The command replaces this program: it has its process number, its terminal, every signal sent to
// it and its exit code, and it keeps the locks for as long as it, or what it started, lives.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <thread>

#include "engine/core/error.h"
#include "engine/launch/process.h"
#include "tools/cli/numbers.h"
#include "tools/commands.h"
#include "tools/devices/idle_gpus.h"
#include "tools/devices/visible_gpus.h"

namespace lockstep::tools {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr Seconds kBetweenAttempts{0.3};
constexpr const char* kName = "with-devices";

struct WithDevicesFlags {
  int count = 0;
  double timeout_seconds = std::numeric_limits<double>::infinity();
  IdleLimits limits;
};

// Found before the waiting starts, not after it.
void require_program(const CommandLine& job) {
  require(!job.empty(), ErrorCode::Usage, kName,
          "say what to run: lockstep with-devices 2 -- COMMAND ARGUMENTS");
  launch::find_program(job[0], launch::current_environment(), kName);
}

// The GPUs that may be taken: those of NVML that CUDA_VISIBLE_DEVICES leaves, its numbers counting
// as nvidia-smi does. CUDA itself is not asked: to start it costs seconds, and builds without it
// may wait too.
std::vector<std::size_t> candidates(const nvml::Library& library, std::size_t count) {
  require(library.available(), ErrorCode::Device, kName, "cannot find out which GPUs are idle: {}",
          library.problem());
  std::vector<std::string> uuids;
  for (const nvml::GpuStatus& gpu : nvml::read_gpus(library)) uuids.push_back(gpu.uuid);
  const char* text = std::getenv("CUDA_VISIBLE_DEVICES");
  const VisibleGpus visible =
      read_visible_devices(text ? std::optional<std::string>(text) : std::nullopt, uuids);
  std::string hidden;
  if (text) hidden = fmt::format(" under CUDA_VISIBLE_DEVICES={} of {}", text, uuids.size());
  for (const std::string& problem : visible.problems) hidden += "; " + problem;
  require(count <= visible.gpus.size(), ErrorCode::Usage, kName,
          "asks for {} {}, and there {} {}{}", count, count == 1 ? "GPU" : "GPUs",
          visible.gpus.size() == 1 ? "is" : "are", visible.gpus.size(), hidden);
  std::vector<std::size_t> indices = visible.gpus;
  std::sort(indices.begin(), indices.end());
  return indices;
}

std::vector<HeldGpu> wait_for_gpus(const nvml::Library& library, std::size_t count,
                                   const WithDevicesFlags& flags) {
  const std::vector<std::size_t> indices = candidates(library, count);
  const std::filesystem::path folder = gpu_lock_folder();
  const Clock::time_point start = Clock::now();
  for (bool has_said = false;; has_said = true) {
    Acquisition acquired = try_acquire(library, indices, count, flags.limits, folder);
    const Seconds waited = Clock::now() - start;
    if (!acquired.gpus.empty()) {
      if (has_said) fmt::print(stderr, "lockstep: got them after {:.1f} s\n", waited.count());
      return std::move(acquired.gpus);
    }
    const std::string busy = fmt::format("{}", fmt::join(acquired.busy, ", "));
    require(waited.count() < flags.timeout_seconds, ErrorCode::Timeout, kName,
            "{} idle {} not to be had within {:g} s: {}", count,
            count == 1 ? "GPU was" : "GPUs were", flags.timeout_seconds, busy);
    if (!has_said) {
      fmt::print(stderr, "lockstep: waiting for {} idle {}: {}\n", count,
                 count == 1 ? "GPU" : "GPUs", busy);
    }
    std::this_thread::sleep_for(
        std::min(kBetweenAttempts, Seconds(flags.timeout_seconds) - waited));
  }
}

[[noreturn]] void become(const CommandLine& job) {
  std::vector<std::string> words = job;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::fflush(nullptr);
  execvp(argv[0], argv.data());
  fail(ErrorCode::Io, kName, "cannot run {}: {}", job[0], std::strerror(errno));
}

void run_with_devices(const WithDevicesFlags& flags, const CommandLine& job) {
  const std::size_t count = require_positive(kName, flags.count);
  if (!std::isinf(flags.timeout_seconds)) require_not_negative("--timeout", flags.timeout_seconds);
  require_not_negative("--max-used-mib", flags.limits.max_used_mib);
  require_not_negative("--max-utilization", flags.limits.max_utilization_percent);
  require_program(job);
  std::vector<HeldGpu> gpus;
  {
    const nvml::Library library;
    gpus = wait_for_gpus(library, count, flags);
  }
  std::vector<std::string> uuids;
  for (HeldGpu& gpu : gpus) {
    uuids.push_back(gpu.uuid);
    gpu.lock.keep_over_exec();
  }
  setenv("CUDA_VISIBLE_DEVICES", fmt::format("{}", fmt::join(uuids, ",")).c_str(), 1);
  become(job);
}

}  // namespace

void add_with_devices_command(Command& program, const CommandLine& command) {
  auto flags = std::make_shared<WithDevicesFlags>();
  Command with_devices =
      program.add_command(kName, "Wait for N idle GPUs and run a command on them, alone");
  with_devices.add_option("N", flags->count, "how many GPUs").required();
  with_devices.add_option("--timeout", flags->timeout_seconds, "seconds to wait; inf: forever");
  with_devices.add_option("--max-used-mib", flags->limits.max_used_mib,
                          "an idle GPU has no more memory in use");
  with_devices.add_option("--max-utilization", flags->limits.max_utilization_percent,
                          "an idle GPU is no more utilised, in percent");
  with_devices.footer(
      "Then: -- COMMAND ARGUMENTS. Example: lockstep with-devices 2 -- python train.py");
  const CommandLine job = words_behind_dashes(command);
  with_devices.on_run([flags, job] { run_with_devices(*flags, job); });
}

}  // namespace lockstep::tools
