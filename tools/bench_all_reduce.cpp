// lockstep bench all-reduce: time and bandwidth of all-reduces between ranks, which are threads or
// processes, with the columns, flags and definitions of nccl-tests.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "engine/comm/host_identity.h"
#include "engine/comm/thread_group.h"
#include "engine/core/error.h"
#include "engine/runtime/logical_device.h"
#include "tools/cli/command_line.h"
#include "tools/cli/numbers.h"
#include "tools/cli/output_path.h"
#include "tools/collectives/all_reduce_report.h"
#include "tools/commands.h"
#include "tools/ranks/rank_job.h"
#include "tools/ranks/start_ranks.h"
#include "tools/report/status_line.h"
#include "tools/training/placement.h"

namespace lockstep::tools {
namespace {

void require_valid(const AllReduceFlags& flags) {
  require_positive("--comm-timeout", flags.comm_timeout);
  plan::parse_all_reduce_plan(flags.plan);
  require(flags.op != "avg" || is_floating_point(flags.dtype()), ErrorCode::Usage, "-o",
          "there is no average of {}; use sum, or a floating point type", flags.datatype);
  require_writable({{"--json", flags.json_path}, {"-J", flags.output_file}});
  list_sizes(flags);
}

TrainingFlags device_flags(const AllReduceFlags& flags) {
  TrainingFlags devices;
  devices.device = flags.device;
  devices.virtual_devices = flags.virtual_devices;
  devices.devices = flags.num_ranks;
  return devices;
}

// Measures all sizes of one type and operation on one rank; only rank 0 has a report. Returns the
// number of wrong values.
std::size_t measure_sizes(const AllReduceFlags& flags, comm::Communicator& communicator,
                          Device device, AllReduceReport* report) {
  const bool is_own = flags.comm == "own";
  const std::vector<std::size_t> sizes = list_sizes(flags);
  std::size_t num_wrong = 0;
  for (const std::size_t bytes : sizes) {
    if (report) {
      show_status(fmt::format("all-reduce of {} bytes, up to {}", bytes, sizes.back()));
    }
    const std::size_t element = size_of(flags.dtype());
    const std::size_t count = bytes / element;
    AllReduceRow row;
    row.num_bytes = count * element;
    row.count = count;
    row.datatype = flags.datatype;
    row.op = flags.op;
    row.plan = is_own ? plan::to_string(communicator.plan_for(count)) : flags.comm;
    row.device = device.type;
    row.transport = communicator.transport();
    if (flags.measures_out_of_place()) {
      row.out_of_place =
          measure_all_reduce(flags, communicator, device, count, Placement::out_of_place);
    }
    row.in_place = measure_all_reduce(flags, communicator, device, count, Placement::in_place);
    num_wrong += row.out_of_place.num_wrong + row.in_place.num_wrong;
    if (!report) continue;
    clear_status();
    report->add(row);
  }
  return num_wrong;
}

void measure_all(const AllReduceFlags& flags, comm::Communicator& communicator, Device device,
                 AllReduceReport* report) {
  std::size_t num_wrong = 0;
  for (const AllReduceFlags& one : each_type_and_op(flags)) {
    num_wrong += measure_sizes(one, communicator, device, report);
  }
  if (!report) return;
  report->finish();
  require(num_wrong == 0, ErrorCode::Numeric, "bench", "{} values are wrong", num_wrong);
}

std::string host_name() {
  return comm::host_name_of(comm::host_identity());
}

// Gathers "4711 1 node7" (process, device, host) from every rank.
std::vector<RankPlace> gather_places(RankJob& rank) {
  const std::string mine = fmt::format("{} {} {}", getpid(), rank.device.index, host_name());
  std::vector<RankPlace> places;
  for (const std::string& text : gather_at_rank_zero(rank, "places", mine)) {
    RankPlace place{0, "", rank.device};
    std::istringstream(text) >> place.process >> place.device.index >> place.host;
    places.push_back(std::move(place));
  }
  return places;
}

void bench_threads(const AllReduceFlags& flags, const CommandLine& command) {
  const DeviceType type = resolve_device_type(device_flags(flags));
  require_linkable(flags, type);
  resolve_devices(device_flags(flags), type);  // throws if there are too few
  comm::ThreadGroupOptions options;
  options.timeout_seconds = flags.comm_timeout;
  options.default_plan = plan::parse_all_reduce_plan(flags.plan);
  options.link = modelled_link(flags);
  std::string who = fmt::format("ranks are threads on {} devices, comm own, {} cores",
                                lockstep::to_string(type), runtime::num_cores());
  if (options.link) who += "\n# " + link_note(flags);
  AllReduceBench bench{flags, command, who, {}};
  for (int r = 0; r < flags.num_ranks; ++r)
    bench.places.push_back({getpid(), host_name(), {type, r}});
  AllReduceReport report(bench);
  const auto work = [&](comm::Communicator& communicator) {
    const int rank = communicator.rank();
    measure_all(flags, communicator, {type, rank}, rank == 0 ? &report : nullptr);
  };
  comm::run_ranks(flags.num_ranks, work, options);
}

// The settings that decide which collectives a rank calls.
std::vector<launch::Setting> common_settings(const AllReduceFlags& flags, DeviceType type) {
  return {{"command", "bench all-reduce"},
          {"device", std::string(lockstep::to_string(type))},
          {"comm", flags.comm},
          {"plan", flags.plan},
          {"transport", flags.transport},
          {"link", flags.link},
          {"sizes", fmt::format("{}", fmt::join(list_sizes(flags), " "))},
          {"datatype", flags.datatype},
          {"op", flags.op},
          {"iterations", std::to_string(flags.iterations)},
          {"warm-up", std::to_string(flags.warm_up)},
          {"check", flags.check},
          {"out of place", flags.measures_out_of_place() ? "yes" : "no"}};
}

void bench_as_rank(AllReduceFlags flags, const CommandLine& command) {
  const DeviceType type = resolve_device_type(device_flags(flags));
  run_as_rank(flags, type, common_settings(flags, type), [&](RankJob& rank) {
    flags.comm = rank.comm;
    const AllReduceBench bench{flags, command,
                               fmt::format("ranks are processes on {} devices, {}",
                                           lockstep::to_string(type), describe_job(rank)),
                               gather_places(rank)};
    std::optional<AllReduceReport> report;
    if (rank.is_first()) report.emplace(bench);
    measure_all(flags, rank.communicator, rank.device, report ? &*report : nullptr);
  });
}

// For the ranks that this process starts: -g sets their number, so each gets one device.
CommandLine with_devices_for_gpus(CommandLine command) {
  for (std::string& word : command) {
    if (word == "-g" || word == "--ngpus") {
      word = "--devices";
    } else if (word.starts_with("--ngpus=")) {
      word = "--devices=" + word.substr(word.find('=') + 1);
    } else if (word.starts_with("-g")) {
      word = "--devices=" + word.substr(2);
    }
  }
  return command;
}

int run_bench_all_reduce(AllReduceFlags flags, std::optional<int> num_asked,
                         const CommandLine& command) {
  const launch::RankEnvironment environment =
      launch::rank_environment(launch::current_environment());
  const Ranks ranks = resolve_ranks(flags, environment, num_asked);
  if (ranks == Ranks::this_process) flags.num_ranks = environment.world_size;
  require_valid(flags);
  switch (ranks) {
    case Ranks::threads:
      bench_threads(flags, command);
      return 0;
    case Ranks::start:
      require_startable(flags, device_flags(flags));
      return start_ranks(flags, with_devices_for_gpus(command), flags.num_ranks);
    case Ranks::this_process:
      name_rank_in_errors(environment, [&] { bench_as_rank(flags, command); });
      return 0;
  }
  return 0;
}

}  // namespace

void add_bench_all_reduce_command(CLI::App& bench, const CommandLine& command, int& exit_code) {
  auto flags = std::make_shared<AllReduceFlags>();
  CLI::App& all_reduce =
      *bench.add_subcommand("all-reduce", "Time all-reduces, as nccl-tests does");
  add_all_reduce_flags(all_reduce, *flags);
  all_reduce.footer(
      "--comm mpi measures the MPI library's own all-reduce. The command starts its ranks by "
      "mpirun, "
      "or mpirun starts the command.");
  all_reduce.callback([flags, command, &all_reduce, &exit_code] {
    bool is_said = all_reduce.count("--devices") > 0;
    const launch::RankEnvironment environment =
        launch::rank_environment(launch::current_environment());
    if (flags->num_gpus && environment.world_size > 1) {
      require(
          *flags->num_gpus == 1, ErrorCode::Usage, "-g",
          "each of the {} processes is one rank with one device, found {}; start more processes",
          environment.world_size, *flags->num_gpus);
    } else if (flags->num_gpus) {
      flags->num_ranks = *flags->num_gpus;
      is_said = true;
    }
    std::optional<int> num_asked;
    if (is_said || environment.world_size == 1) num_asked = flags->num_ranks;
    exit_code = run_bench_all_reduce(*flags, num_asked, command);
  });
}

}  // namespace lockstep::tools
