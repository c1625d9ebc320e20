// lockstep calibrate: measures this machine's own devices and writes them as a topology that
// predict, compare --predict and --act-as read.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/comm/thread_group.h"
#include "engine/core/error.h"
#include "engine/core/json_file.h"
#include "engine/launch/rank_environment.h"
#include "engine/runtime/cpu_cores.h"
#include "engine/runtime/logical_device.h"
#include "simulate/predict/kernel_cost.h"
#include "tools/calibration/measurement.h"
#include "tools/cli/command_line.h"
#include "tools/cli/numbers.h"
#include "tools/cli/output_path.h"
#include "tools/commands.h"
#include "tools/ranks/rank_job.h"
#include "tools/ranks/start_ranks.h"
#include "tools/report/contention.h"
#include "tools/report/row_table.h"
#include "tools/report/run_file.h"
#include "tools/report/status_line.h"
#include "tools/report/step_statistics.h"
#include "tools/training/placement.h"

namespace lockstep::tools {
namespace {

constexpr std::size_t kMostDevices = 8;

struct CalibrateFlags {
  std::string output = "calibration.json";
  std::optional<int> devices;
  std::optional<int> threads_per_device;
  bool is_fast = false;
  // Set in the ranks that this program starts: they measure all-reduces and write them to this
  // file.
  std::string exchange;
};

std::size_t num_devices(const CalibrateFlags& flags) {
  if (!flags.devices) return std::min(kMostDevices, runtime::num_cores());
  require(*flags.devices >= 1 && static_cast<std::size_t>(*flags.devices) <= kMostDevices,
          ErrorCode::Usage, "--devices", "expected 1 to {}, found {}", kMostDevices,
          *flags.devices);
  return static_cast<std::size_t>(*flags.devices);
}

std::size_t num_threads(const CalibrateFlags& flags) {
  if (!flags.threads_per_device) {
    return std::max<std::size_t>(1, runtime::num_cores() / num_devices(flags));
  }
  return require_positive("--threads-per-device", *flags.threads_per_device);
}

void add(Measurement& measurement, predict::RankKind ranks, std::size_t num_ranks,
         AllReduceTimes times) {
  measurement.machine.all_reduces.push_back({ranks, num_ranks, std::move(times.curve)});
  auto& spreads = measurement.all_reduce_spreads;
  spreads.insert(spreads.end(), times.spreads.begin(), times.spreads.end());
}

// Runs in the ranks that measure_by_processes() starts.
void exchange_as_rank(const CalibrateFlags& flags) {
  const auto work = [&](RankJob& rank) {
    const AllReduceTimes times = measure_all_reduces(rank.communicator, rank.device, flags.is_fast);
    if (!rank.is_first()) return;
    nlohmann::ordered_json json = curve_json(times.curve);
    json["spreads"] = times.spreads;
    write_json(flags.exchange, json);
  };
  RankFlags ranks;
  ranks.comm = "own";
  run_as_rank(ranks, DeviceType::cpu, {{"command", "calibrate"}}, work);
}

AllReduceTimes measure_by_processes(const CalibrateFlags& calibration, std::size_t num_ranks) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/exchange.json";
  RankFlags flags;
  flags.comm = "own";
  const std::string threads = std::to_string(num_threads(calibration));
  CommandLine command{"lockstep", "calibrate", "--exchange", file, "--threads-per-device", threads};
  if (calibration.is_fast) command.push_back("--fast");
  const int code = start_ranks(flags, command, static_cast<int>(num_ranks));
  require(code == 0, ErrorCode::Comm, "calibrate", "{} processes ended with exit code {}",
          num_ranks, code);
  const JsonFile json(std::filesystem::path(file), "calibrate");
  AllReduceTimes times{{json.fields().numbers("bytes"), json.fields().numbers("us")},
                       json.fields().numbers("spreads")};
  for (double& seconds : times.curve.seconds) seconds *= 1e-6;
  return times;
}

// Measures all-reduces of ranks that are threads, and how such ranks slow each other down.
void measure_by_threads(std::size_t num_ranks, Measurement& measurement) {
  comm::run_ranks(static_cast<int>(num_ranks), [&](comm::Communicator& communicator) {
    const Device device{DeviceType::cpu, communicator.rank()};
    const AllReduceTimes times = measure_all_reduces(communicator, device, measurement.is_fast);
    const predict::Interference overlap = measure_overlap(communicator, device, times.curve);
    const double deviation = measure_deviation(communicator, device);
    if (communicator.rank() != 0) return;
    add(measurement, predict::RankKind::threads, num_ranks, times);
    measurement.machine.overlap = overlap;
    measurement.machine.deviation = deviation;
  });
}

void measure_threads(Measurement& measurement) {
  for (std::size_t n = 2; n <= measurement.num_devices; ++n) {
    show_status(fmt::format("all-reduces of {} threads", n));
    measure_by_threads(n, measurement);
  }
  show_status("memory traffic");
  measure_traffic(measurement);
  measure_batches(measurement);
  show_status("layers");
  measure_layers_beside(measurement);
  measure_losses(measurement);
  measure_layers(measurement);
  clear_status();
}

std::string summary(const predict::Topology& topology) {
  const predict::MeasuredMachine& measured = *topology.device.measured;
  std::string text =
      fmt::format("{} x {}: up to {:.0f} GFLOP/s and {:.1f} GB/s each", topology.gpus.size(),
                  topology.device.name, topology.device.flops_per_second / 1e9,
                  topology.device.memory_bytes_per_second / 1e9);
  if (topology.gpus.size() == 1) return text;
  return text +
         fmt::format(
             "; when all devices compute at once, layers take {:.2f} and memory traffic {:.2f} "
             "times as long; while layers and an all-reduce overlap, layers keep {:.0f} % of their "
             "speed and the all-reduce {:.0f} %",
             measured.layers_beside.back(),
             predict::traffic_beside(topology.device, topology.gpus.size(),
                                     measured.traffic.back().sizes.back()),
             100 * measured.overlap.compute, 100 * measured.overlap.comm);
}

void print_all_reduces(const predict::MeasuredMachine& measured) {
  if (measured.all_reduces.empty()) return;
  fmt::print("all-reduce behind a backward pass, us\n{:>10}{:>9}{:>11}{:>11}{:>11}{:>11}\n",
             "ranks", "devices", "16 KiB", "256 KiB", "4 MiB", "64 MiB");
  for (const predict::MeasuredAllReduce& all_reduce : measured.all_reduces) {
    fmt::print("{:>10}{:>9}", predict::to_string(all_reduce.ranks), all_reduce.num_devices);
    for (const double bytes : {16.0 * 1024, 256.0 * 1024, 4.0 * 1048576, 64.0 * 1048576}) {
      fmt::print("{:>11.1f}", 1e6 * all_reduce.curve.at(bytes));
    }
    fmt::print("\n");
  }
}

std::string spread_text(const Measurement& measurement) {
  std::string text = fmt::format(
      "repeats of the same work differ by (middle half, share of the median): layers "
      "{:.0f} %, copies {:.0f} %",
      100 * median(measurement.layer_spreads), 100 * median(measurement.copy_spreads));
  if (!measurement.all_reduce_spreads.empty()) {
    text += fmt::format(", all-reduces {:.0f} %", 100 * median(measurement.all_reduce_spreads));
  }
  return text;
}

void calibrate(const CalibrateFlags& flags) {
  Measurement measurement;
  measurement.num_devices = num_devices(flags);
  measurement.is_fast = flags.is_fast;
  const std::size_t threads = num_threads(flags);
  if (flags.threads_per_device) note_missing_cores(threads);
  require_writable({{"--output", flags.output}});
  // Processes come first: a program that starts some must not have threads yet.
  std::vector<AllReduceTimes> of_processes;
  for (std::size_t n = 2; n <= measurement.num_devices; ++n) {
    show_status(fmt::format("all-reduces of {} processes", n));
    of_processes.push_back(measure_by_processes(flags, n));
  }
  runtime::set_threads_per_device(threads);
  measurement.machine.threads_per_device = threads;
  ContentionProbe probe({Device{}});
  probe.sample();
  measure_threads(measurement);
  probe.sample();
  // Threads come first in the file, because its links are fitted to them.
  for (std::size_t i = 0; i < of_processes.size(); ++i) {
    add(measurement, predict::RankKind::processes, i + 2, std::move(of_processes[i]));
  }
  const predict::Topology topology =
      calibrated_topology(measurement.machine, measurement.num_devices);
  write_json(flags.output, topology_json(topology));
  fmt::print("{}\n", wrap(summary(topology)));
  print_all_reduces(*topology.device.measured);
  fmt::print("{}\n", wrap(spread_text(measurement)));
  if (probe.verdict(measurement.num_devices * threads).value_or(false)) {
    fmt::print("{}\n",
               wrap("*: another program took time from these cores meanwhile, so figures are "
                    "too long; calibrate again on an idle machine"));
  }
  fmt::print("{}\n", wrap(fmt::format("wrote {0}: use it as predict --topology {0}, compare "
                                      "--predict {0}, or train --act-as {0}",
                                      flags.output)));
}

}  // namespace

void add_calibrate_command(CLI::App& program) {
  auto flags = std::make_shared<CalibrateFlags>();
  CLI::App& command = *program.add_subcommand(
      "calibrate", "Measure this machine's CPU devices, and write them as a topology");
  command.add_option("-o,--output", flags->output, "write the topology here")->type_name("FILE");
  command.add_option("--devices", flags->devices,
                     "how many devices to measure together (default: as many as cores, at most 8)");
  command.add_option("--threads-per-device", flags->threads_per_device,
                     "CPU threads of each device (default: cores / devices)");
  command.add_flag("--fast", flags->is_fast, "measure fewer sizes, in seconds but coarsely");
  command.add_option("--exchange", flags->exchange, "")->group("");
  command.footer(
      "Two devices take up to two minutes, more take longer. Run nothing else meanwhile.\n"
      "docs/prediction.md says what is measured and how it is used.");
  command.callback([flags] {
    if (flags->exchange.empty()) return calibrate(*flags);
    const launch::RankEnvironment environment =
        launch::rank_environment(launch::current_environment());
    runtime::set_threads_per_device(num_threads(*flags));
    name_rank_in_errors(environment, [&] { exchange_as_rank(*flags); });
  });
}

}  // namespace lockstep::tools
