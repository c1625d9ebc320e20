// lockstep bench all-reduce: time and bandwidth of all-reduces between ranks, which are threads or
// processes, in the terms of nccl-tests: algbw = bytes / time, busbw = algbw * 2(n-1)/n, in GB/s.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/comm/thread_group.h"
#include "engine/core/dtype.h"
#include "engine/core/error.h"
#include "engine/runtime/logical_device.h"
#include "tools/commands/commands.h"
#include "tools/commands/timed_all_reduce.h"
#include "tools/flags/command_line.h"
#include "tools/flags/help.h"
#include "tools/flags/numbers.h"
#include "tools/flags/output_path.h"
#include "tools/flags/training_flags.h"
#include "tools/record/host_info.h"
#include "tools/record/run_file.h"
#include "tools/run/interruption.h"
#include "tools/run/placement.h"
#include "tools/run/processes.h"
#include "tools/run/rank_job.h"
#include "tools/run/settings.h"
#include "tools/text/format.h"
#include "tools/text/status_line.h"

namespace lockstep::tools {
namespace {

// This command shares the training flags of devices and ranks.
struct AllReduceFlags : TrainingFlags, AllReduceKind {
  std::string first_bytes = "16K";
  std::string last_bytes = "64M";
  int factor = 4;

  int num_ranks() const { return devices.value_or(2); }
};

template <typename T>
std::vector<std::string> names_in(const std::map<std::string, T>& map) {
  std::vector<std::string> names;
  for (const auto& [name, value] : map) names.push_back(name);
  return names;
}

void add_all_reduce_flags(CLI::App& command, AllReduceFlags& flags) {
  add_option(command, "-b,--minbytes", flags.first_bytes, "BYTES", "smallest size, as in 16K");
  add_option(command, "-e,--maxbytes", flags.last_bytes, "BYTES", "largest size, as in 64M");
  command.add_option("-f,--stepfactor", flags.factor, "factor from one size to the next");
  command.add_option("-d,--datatype", flags.datatype, "type of the elements")
      ->check(one_of(names_in(kDatatypes)));
  command.add_option("-o,--op", flags.op, "how elements are reduced, avg only in floating point")
      ->check(one_of(names_in(kOps)));
  command.add_option("-n,--iters", flags.iterations, "all-reduces that are timed")
      ->check(CLI::Range(1, 1000000));
  command
      .add_option("-w,--warmup_iters", flags.warm_up, "all-reduces that warm up before, untimed")
      ->check(CLI::Range(0, 1000000));
  command.add_flag("-c,--check", flags.checks, "check the results");
  command
      .add_option("-g,--devices", flags.devices,
                  "how many ranks, one device each (default: 2; as many as a launcher started)")
      ->check(CLI::Range(1, runtime::kMaxCpuDevices));
  for (const char* name : {"--device", "--virtual-devices", "--ranks", "--comm", "--nccl-share-gpu",
                           "--plan", "--transport", "--link", "--comm-timeout", "--json"}) {
    add_training_flag(command, flags, name);
  }
  command.get_option("--json")->description("write the rows here (-: standard output)");
  group_flags(command, {{"Most used",
                         {"-b", "-e", "-g", "-n", "--device", "--ranks", "--comm", "--plan",
                          "--transport", "--json"}},
                        {"What to reduce", {"-f", "-d", "-o", "-w", "-c"}},
                        {"On what and how fast",
                         {"--virtual-devices", "--nccl-share-gpu", "--link", "--comm-timeout"}}});
}

// The sizes in bytes from -b to -e. Throws Error{Usage} for sizes that make no sense, are below one
// element, or exceed this machine's memory.
std::vector<std::size_t> list_sizes(const AllReduceFlags& flags) {
  const std::size_t first = parse_bytes("-b", flags.first_bytes);
  const std::size_t last = parse_bytes("-e", flags.last_bytes);
  const std::size_t least = size_of(flags.element_type());
  require(first >= least && first <= last, ErrorCode::Usage, "bench",
          "sizes must satisfy {} <= -b <= -e, found -b {} -e {}", least, first, last);
  require(flags.factor >= 2, ErrorCode::Usage, "-f", "must be at least 2, found {}", flags.factor);
  std::vector<std::size_t> sizes;
  const auto factor = static_cast<std::size_t>(flags.factor);
  for (std::size_t bytes = first;; bytes *= factor) {
    sizes.push_back(bytes);
    if (bytes > last / factor) break;
  }
  require_memory("-e", static_cast<double>(sizes.back()) * flags.num_ranks());
  return sizes;
}

constexpr const char* kEndingRow = "this row";  // what the first signal waits for

// The table on the terminal, and the rows of --json. Only rank 0 has one.
class Report {
 public:
  // who: "threads on cpu devices, ...".
  Report(const AllReduceFlags& flags, const CommandLine& command, const std::string& who)
      : flags_(flags),
        out_(flags.json_path == "-" ? stderr : stdout),
        json_(file_head("lockstep.bench-all-reduce/1", command)) {
    json_["rows"] = nlohmann::ordered_json::array();
    print_wrapped(out_, fmt::format("{}: {}", count_text(flags.num_ranks(), "rank"), who));
    print_wrapped(out_, fmt::format("all-reduces of {}, {}; the mean of {} after {} to warm up{}",
                                    flags.datatype, flags.op, flags.iterations, flags.warm_up,
                                    flags.checks ? "; each size is checked" : ""));
    fmt::print(out_, fmt::runtime(kRow), "bytes", "us", "algbw", "busbw", "plan");
    std::fflush(out_);
  }

  void add(const comm::Communicator& communicator, Device device, std::size_t count,
           const AllReduceTime& time) {
    const std::size_t num_bytes = count * size_of(flags_.element_type());
    // As nccl-tests defines them, in GB/s.
    const double algbw = static_cast<double>(num_bytes) / time.seconds * 1e-9;
    const double busbw = algbw * 2 * (flags_.num_ranks() - 1) / flags_.num_ranks();
    const std::string plan(flags_.comm == "own" ? plan::to_string(communicator.plan_for(count))
                                                : std::string_view(flags_.comm));
    fmt::print(out_, fmt::runtime(kRow), num_bytes, fmt::format("{:.2f}", time.seconds * 1e6),
               fmt::format("{:.3g}", algbw), fmt::format("{:.3g}", busbw), plan);
    std::fflush(out_);
    num_wrong_ += time.num_wrong;
    json_["rows"].push_back(
        {{"bytes", num_bytes},
         {"type", flags_.datatype},
         {"redop", flags_.op},
         {"plan", plan},
         {"device", lockstep::to_string(device.type)},
         {"transport", communicator.transport()},
         {"comm", flags_.comm},
         {"ranks", flags_.num_ranks()},
         {"iterations", flags_.iterations},
         {"warmup_iterations", flags_.warm_up},
         {"time_us", time.seconds * 1e6},
         {"algbw_gb_per_s", algbw},
         {"busbw_gb_per_s", busbw},
         {"wrong", flags_.checks ? nlohmann::json(time.num_wrong) : nlohmann::json()}});
  }

  // Prints the table's foot and writes the file, after a signal (0: none) as far as it came.
  // Returns the exit code. Throws Error{Numeric} for wrong values.
  int finish(int signal, std::size_t num_planned) {
    fmt::print(out_, "algbw: bytes / time; busbw: algbw * 2(n-1)/n, for n ranks; in GB/s\n");
    const int exit_code = end_bench(flags_.json_path, json_, signal, num_planned);
    require(num_wrong_ == 0, ErrorCode::Numeric, "bench", "{} values are wrong", num_wrong_);
    return exit_code;
  }

 private:
  static constexpr const char* kRow = "{:>12}{:>13}{:>10}{:>10}  {}\n";

  const AllReduceFlags& flags_;
  std::FILE* out_;
  nlohmann::ordered_json json_;
  std::size_t num_wrong_ = 0;
};

// The signal that any of the ranks has seen; 0: none. So all ranks end after the same row.
int signal_of_all(comm::Communicator& communicator, Device device) {
  return static_cast<int>(
      comm::reduce_number(Interruption::signal(), comm::ReduceOp::max, communicator, device));
}

// Measures all sizes on one rank, or up to a signal. Returns the exit code.
int measure_all(const AllReduceFlags& flags, comm::Communicator& communicator, Device device,
                Report* report) {
  const std::vector<std::size_t> sizes = list_sizes(flags);
  int signal = 0;
  for (const std::size_t bytes : sizes) {
    if (signal != 0) break;
    if (report) show_status(fmt::format("all-reduce of {} bytes, up to {}", bytes, sizes.back()));
    const std::size_t count = bytes / size_of(flags.element_type());
    const AllReduceTime time = measure_all_reduce(flags, communicator, device, count);
    signal = signal_of_all(communicator, device);
    if (!report) continue;
    clear_status();
    report->add(communicator, device, count, time);
  }
  if (report) return report->finish(signal, sizes.size());
  return signal == 0 ? 0 : 128 + signal;
}

// Returns the exit code.
int bench_threads(const AllReduceFlags& flags, const CommandLine& command) {
  const DeviceType type = resolve_device_type(flags);
  require_linkable(flags, type);
  resolve_devices(flags, type);  // throws if there are too few
  comm::ThreadGroupOptions options;
  options.timeout_seconds = flags.comm_timeout;
  options.default_plan = plan::parse_all_reduce_plan(flags.plan);
  options.links = comm::fixed_links(modelled_link(flags));
  std::string who = fmt::format("threads on {} devices, comm own, {} cores",
                                lockstep::to_string(type), runtime::num_cores());
  if (options.links) who += "; " + link_note(flags);
  Report report(flags, command, who);
  const Interruption interruption(kEndingRow);
  int exit_code = 0;
  const auto work = [&](comm::Communicator& communicator) {
    const int rank = communicator.rank();
    const int code = measure_all(flags, communicator, {type, rank}, rank == 0 ? &report : nullptr);
    if (rank == 0) exit_code = code;
  };
  comm::run_ranks(flags.num_ranks(), work, options);
  return exit_code;
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
          {"check", flags.checks ? "on" : "off"}};
}

// Returns the exit code.
int bench_as_rank(AllReduceFlags flags, const CommandLine& command) {
  const DeviceType type = resolve_device_type(flags);
  int exit_code = 0;
  run_as_rank(flags, type, common_settings(flags, type), [&](RankJob& rank) {
    flags.comm = rank.comm;
    std::optional<Report> report;
    if (rank.is_first()) {
      report.emplace(flags, command,
                     fmt::format("processes on {} devices, {}", lockstep::to_string(type),
                                 describe_job(rank)));
    }
    const Interruption interruption(report ? kEndingRow : nullptr);
    exit_code = measure_all(flags, rank.communicator, rank.device, report ? &*report : nullptr);
  });
  return exit_code;
}

int run_bench_all_reduce(AllReduceFlags flags, const CommandLine& command) {
  const launch::RankEnvironment environment =
      launch::rank_environment(launch::current_environment());
  if (!flags.devices) flags.devices = environment.world_size > 1 ? environment.world_size : 2;
  const Ranks ranks = resolve_ranks(flags, environment, flags.devices);
  require_positive("--comm-timeout", flags.comm_timeout);
  require(flags.op != "avg" || is_floating_point(flags.element_type()), ErrorCode::Usage, "-o",
          "cannot average {}; use sum, or a floating-point type", flags.datatype);
  require_writable({{"--json", flags.json_path}});
  list_sizes(flags);
  switch (ranks) {
    case Ranks::threads:
      return bench_threads(flags, command);
    case Ranks::start:
      require_startable(flags, flags);
      return start_ranks(command, flags.num_ranks());
    case Ranks::this_process: {
      int exit_code = 0;
      name_rank_in_errors(environment, [&] { exit_code = bench_as_rank(flags, command); });
      return exit_code;
    }
  }
  return 0;
}

}  // namespace

void add_bench_all_reduce_command(CLI::App& bench, const CommandLine& command, int& exit_code) {
  auto flags = std::make_shared<AllReduceFlags>();
  CLI::App& all_reduce = *bench.add_subcommand("all-reduce", "Time all-reduces");
  add_all_reduce_flags(all_reduce, *flags);
  all_reduce.callback(
      [flags, command, &exit_code] { exit_code = run_bench_all_reduce(*flags, command); });
}

}  // namespace lockstep::tools
