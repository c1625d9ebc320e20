// lockstep bench all-reduce: time and bandwidth of all-reduces between ranks, which are threads or
// processes, with the columns, flags and definitions of nccl-tests.
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "engine/comm/run_ranks.h"
#include "engine/core/error.h"
#include "engine/runtime/logical_device.h"
#include "tools/cli/numbers.h"
#include "tools/cli/output_path.h"
#include "tools/collectives/all_reduce_table.h"
#include "tools/commands.h"
#include "tools/ranks/rank_job.h"
#include "tools/ranks/start_ranks.h"
#include "tools/report/status_line.h"
#include "tools/training/devices.h"

namespace lockstep::tools {
namespace {

void require_valid(const AllReduceFlags& flags) {
  require_positive("--comm-timeout", flags.comm_timeout);
  plan::parse_all_reduce_plan(flags.plan);
  require(flags.op != "avg" || is_floating_point(flags.dtype()), ErrorCode::Usage, "-o",
          "there is no average of {}; use sum, or a floating point type", flags.datatype);
  require_writable("--json", flags.json_path);
  list_sizes(flags);
}

TrainingFlags device_flags(const AllReduceFlags& flags) {
  TrainingFlags devices;
  devices.device = flags.device;
  devices.virtual_devices = flags.virtual_devices;
  devices.devices = flags.num_ranks;
  return devices;
}

// All sizes, on one rank; the table is rank 0's.
void measure_sizes(const AllReduceFlags& flags, comm::Communicator& communicator, Device device,
                   AllReduceTable* table) {
  const std::vector<std::size_t> sizes = list_sizes(flags);
  for (const std::size_t bytes : sizes) {
    if (table) show_status(fmt::format("all-reduce of {} bytes, up to {}", bytes, sizes.back()));
    const std::size_t element = size_of(flags.dtype());
    const std::size_t count = bytes / element;
    const AllReduceTime time = measure_all_reduce(flags, communicator, device, count);
    if (!table) continue;
    clear_status();
    const bool is_own = flags.comm == "own";
    table->add(count * element, is_own ? plan::to_string(communicator.plan_for(count)) : flags.comm,
               device.type, is_own ? transport_in(communicator.description()) : flags.comm, time);
  }
}

void bench_threads(const AllReduceFlags& flags, const CommandLine& command) {
  const DeviceType type = resolve_device_type(device_flags(flags));
  require_linkable(flags, type);
  resolve_devices(device_flags(flags), type);  // fails where there are not so many
  comm::ThreadGroupOptions options;
  options.timeout_seconds = flags.comm_timeout;
  options.default_plan = plan::parse_all_reduce_plan(flags.plan);
  options.link = modelled_link(flags);
  std::string who = fmt::format("ranks are threads on {} devices, comm own, {} cores",
                                lockstep::to_string(type), runtime::num_cores());
  if (options.link) who += "\n# " + link_note(flags);
  AllReduceTable table(flags, command, who);
  const auto work = [&](comm::Communicator& communicator) {
    const int rank = communicator.rank();
    measure_sizes(flags, communicator, {type, rank}, rank == 0 ? &table : nullptr);
  };
  comm::run_ranks(flags.num_ranks, work, options);
  table.finish();
}

void bench_as_rank(AllReduceFlags flags, const CommandLine& command) {
  const DeviceType type = resolve_device_type(device_flags(flags));
  run_as_rank(flags, type, [&](RankJob& rank) {
    flags.comm = rank.comm;
    std::optional<AllReduceTable> table;
    if (rank.is_first()) {
      table.emplace(flags, command,
                    fmt::format("ranks are processes on {} devices, {}", lockstep::to_string(type),
                                describe_job(rank)));
    }
    measure_sizes(flags, rank.communicator, rank.device, table ? &*table : nullptr);
    if (table) table->finish();
  });
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
      return start_ranks(flags, command, flags.num_ranks);
    case Ranks::this_process:
      name_rank_in_errors(environment, [&] { bench_as_rank(flags, command); });
      return 0;
  }
  return 0;
}

}  // namespace

void add_bench_all_reduce_command(Command& bench, const CommandLine& command, int& exit_code) {
  auto flags = std::make_shared<AllReduceFlags>();
  Command all_reduce = bench.add_command("all-reduce", "Time all-reduces, as nccl-tests does");
  add_all_reduce_flags(all_reduce, *flags);
  all_reduce.footer(
      "--comm mpi measures the MPI library's own all-reduce: the ranks are started by `mpirun -np "
      "N`, which takes this process's place, or this command is started by mpirun.");
  all_reduce.on_run([flags, command, all_reduce, &exit_code] {
    const bool is_said = all_reduce.was_said("--devices");
    const launch::RankEnvironment environment =
        launch::rank_environment(launch::current_environment());
    std::optional<int> num_asked;
    if (is_said || environment.world_size == 1) num_asked = flags->num_ranks;
    exit_code = run_bench_all_reduce(*flags, num_asked, command);
  });
}

}  // namespace lockstep::tools
