// lockstep calibrate: what this machine's own devices take, measured, as a topology that predict,
// compare --predict and --act-as read.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
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
#include "tools/calibration/calibrated_file.h"
#include "tools/calibration/measure_device.h"
#include "tools/calibration/measure_exchange.h"
#include "tools/calibration/median_of_passes.h"
#include "tools/cli/numbers.h"
#include "tools/cli/output_path.h"
#include "tools/commands.h"
#include "tools/ranks/rank_job.h"
#include "tools/ranks/start_ranks.h"
#include "tools/ranks/temporary_folder.h"
#include "tools/report/contention.h"
#include "tools/report/row_table.h"
#include "tools/report/run_file.h"
#include "tools/report/status_line.h"

namespace lockstep::tools {
namespace {

constexpr std::size_t kMostDevices = 8;
constexpr std::size_t kPasses = 3;         // some tens of seconds each
constexpr std::size_t kProcessPasses = 5;  // a second for each number of processes, fast or not

struct CalibrateFlags {
  std::string output = "calibration.json";
  std::optional<int> devices;
  std::optional<int> threads_per_device;
  bool fast = false;
  // Of the ranks that this program starts: measure all-reduces and leave them in this file.
  std::string exchange;

  Care care() const { return fast ? Care::fast : Care::usual; }
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

// What a rank 0 leaves in the file of --exchange.
struct ProcessExchange {
  predict::Curve all_reduces;
  bool is_contended = false;
};

void exchange_as_rank(const CalibrateFlags& flags) {
  const auto work = [&](RankJob& rank) {
    ContentionProbe probe({rank.device});
    probe.sample();
    const double cpu_before = runtime::own_cpu_seconds();
    const predict::Curve curve = measure_all_reduces(rank.communicator, rank.device, flags.care());
    const double cpu = runtime::own_cpu_seconds() - cpu_before;
    probe.sample();
    const double cpu_of_all =
        comm::reduce_number(cpu, comm::ReduceOp::sum, rank.communicator, rank.device);
    if (!rank.is_first()) return;
    const std::size_t num_sharing = num_ranks_on_cores(rank.environment);
    const double cpu_of_peers = num_sharing == 1 ? 0 : cpu_of_all - cpu;
    nlohmann::ordered_json json = curve_json(curve);
    json["contended"] =
        probe.verdict(num_threads(flags) * num_sharing, cpu_of_peers).value_or(false);
    write_json(flags.exchange, json);
  };
  RankFlags ranks;
  ranks.comm = "own";
  run_as_rank(ranks, DeviceType::cpu, {{"command", "calibrate"}}, work);
}

ProcessExchange exchange_by_processes(const CalibrateFlags& calibration, std::size_t num_ranks) {
  const TemporaryFolder folder("calibrate");
  const std::string file = folder.path() + "/exchange.json";
  RankFlags flags;
  flags.comm = "own";
  CommandLine command{"lockstep",
                      "calibrate",
                      "--exchange",
                      file,
                      "--threads-per-device",
                      std::to_string(num_threads(calibration))};
  if (calibration.fast) command.push_back("--fast");
  const int code = start_ranks(flags, command, static_cast<int>(num_ranks));
  require(code == 0, ErrorCode::Comm, "calibrate", "{} processes ended with exit code {}",
          num_ranks, code);
  const JsonFile json(std::filesystem::path(file), "calibrate");
  ProcessExchange exchange{{json.fields().numbers("bytes"), json.fields().numbers("us")},
                           json.fields().optional_flag("contended").value_or(false)};
  for (double& seconds : exchange.all_reduces.seconds) seconds *= 1e-6;
  return exchange;
}

struct ProcessMeasurement {
  std::vector<predict::MeasuredAllReduce> all_reduces;
  bool is_contended = false;  // more often than a median tolerates
};

// All-reduces of ranks that are processes. On a machine that is shared, what others do may last as
// long as a pass takes for a size.
ProcessMeasurement measure_processes(const CalibrateFlags& flags, std::size_t num_devices) {
  std::vector<predict::MeasuredMachine> passes(kProcessPasses);
  std::size_t num_exchanges = 0;
  std::size_t num_contended = 0;
  for (predict::MeasuredMachine& pass : passes) {
    for (std::size_t n = 2; n <= num_devices; ++n) {
      show_status(fmt::format("all-reduces of {} processes", n));
      ProcessExchange exchange = exchange_by_processes(flags, n);
      pass.all_reduces.push_back(
          {predict::RankKind::processes, n, std::move(exchange.all_reduces)});
      ++num_exchanges;
      if (exchange.is_contended) ++num_contended;
    }
  }
  return {median_of_passes(std::move(passes)).all_reduces, 2 * num_contended > num_exchanges};
}

// All-reduces of ranks that are threads, and what such ranks do to each other.
predict::MeasuredMachine measure_exchange(std::size_t num_devices, Care care) {
  predict::MeasuredMachine measured;
  for (std::size_t n = 2; n <= num_devices; ++n) {
    comm::run_ranks(static_cast<int>(n), [&](comm::Communicator& communicator) {
      const Device device{DeviceType::cpu, communicator.rank()};
      const predict::Curve curve = measure_all_reduces(communicator, device, care);
      const predict::Interference overlap = measure_overlap(communicator, device, curve);
      const double deviation = measure_deviation(communicator, device);
      if (communicator.rank() != 0) return;
      measured.all_reduces.push_back({predict::RankKind::threads, n, curve});
      measured.overlap = overlap;
      measured.deviation = deviation;
    });
  }
  return measured;
}

// On a machine that is shared, what others do comes and goes within a second. An exchange takes no
// longer than that: it is measured again ahead of each other part.
predict::MeasuredMachine measure_threads(std::size_t num_devices, Care care) {
  const std::vector<std::function<void(predict::MeasuredMachine&)>> parts = {
      [&](auto& measured) { measure_traffic(num_devices, measured, care); },
      [&](auto& measured) { measure_layers_beside(num_devices, measured, care); },
      [&](auto& measured) { measure_batches(measured); },
      [&](auto& measured) { measure_losses(measured); },
      [&](auto& measured) { measure_layers(measured, care); },
  };
  const std::size_t num_passes = care == Care::fast ? 1 : kPasses;
  std::vector<predict::MeasuredMachine> exchanges;
  std::vector<predict::MeasuredMachine> passes(num_passes);
  for (std::size_t i = 0; i < num_passes; ++i) {
    show_status(fmt::format("pass {} of {}", i + 1, num_passes));
    for (const auto& measure_part : parts) {
      exchanges.push_back(measure_exchange(num_devices, care));
      measure_part(passes[i]);
    }
  }
  clear_status();
  predict::MeasuredMachine measured = median_of_passes(std::move(passes));
  predict::MeasuredMachine exchange = median_of_passes(std::move(exchanges));
  measured.all_reduces = std::move(exchange.all_reduces);
  measured.overlap = exchange.overlap;
  measured.deviation = exchange.deviation;
  return measured;
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
             "; with all at work layers take {:.2f} and memory traffic {:.2f} times as "
             "long; beside an all-reduce {:.0f} % of the speed of layers is left, and {:.0f} "
             "% of the all-reduce's",
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

void calibrate(const CalibrateFlags& flags) {
  const std::size_t devices = num_devices(flags);
  const std::size_t threads = num_threads(flags);
  require_writable({{"--output", flags.output}});
  // Processes first: a program that starts some must not have threads yet.
  const ProcessMeasurement processes = measure_processes(flags, devices);
  runtime::set_threads_per_device(threads);
  ContentionProbe probe({Device{}});
  probe.sample();
  predict::MeasuredMachine measured = measure_threads(devices, flags.care());
  probe.sample();
  measured.threads_per_device = threads;
  measured.all_reduces.insert(measured.all_reduces.end(), processes.all_reduces.begin(),
                              processes.all_reduces.end());
  const predict::Topology topology = calibrated_topology(measured, devices);
  write_json(flags.output, topology_json(topology));
  fmt::print("{}\n", wrap(summary(topology)));
  print_all_reduces(*topology.device.measured);
  if (processes.is_contended || probe.verdict(devices * threads).value_or(false)) {
    fmt::print("{}\n",
               wrap("*: another program took time from these cores meanwhile, so figures are "
                    "too long; calibrate again on an idle machine"));
  }
  fmt::print("{}\n", wrap(fmt::format("written to {0}: --topology {0} of predict, --predict {0} of "
                                      "compare, --act-as {0} of train and compare",
                                      flags.output)));
}

}  // namespace

void add_calibrate_command(Command& program) {
  auto flags = std::make_shared<CalibrateFlags>();
  Command command = program.add_command(
      "calibrate", "Measure this machine's CPU devices, and write them as a topology");
  command.add_option("-o,--output", flags->output, "the topology's file");
  command.add_option("--devices", flags->devices,
                     "how many devices to measure together (default: one a core, at most 8)");
  command.add_option("--threads-per-device", flags->threads_per_device,
                     "CPU threads of each (default: cores / devices)");
  command.add_flag("--fast", flags->fast, "layers of few sizes, once: some seconds, and coarse");
  command.add_option("--exchange", flags->exchange, "").hidden();
  command.footer(
      "Takes two minutes for two devices on an idle machine, for more devices longer; what else "
      "runs on it gets into the figures. "
      "docs/prediction.md says what is measured and how it is used.");
  command.on_run([flags] {
    if (flags->exchange.empty()) return calibrate(*flags);
    const launch::RankEnvironment environment =
        launch::rank_environment(launch::current_environment());
    runtime::set_threads_per_device(num_threads(*flags));
    name_rank_in_errors(environment, [&] { exchange_as_rank(*flags); });
  });
}

}  // namespace lockstep::tools
