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
  std::string step_bytes;  // -i: the step between sizes, instead of the factor

  int num_ranks() const { return devices.value_or(2); }
};

template <typename T>
std::vector<std::string> names_in(const std::map<std::string, T>& map) {
  std::vector<std::string> names;
  for (const auto& [name, value] : map) names.push_back(name);
  names.push_back(kAll);
  return names;
}

void add_all_reduce_flags(CLI::App& command, AllReduceFlags& flags) {
  add_option(command, "-b,--minbytes", flags.first_bytes, "BYTES", "smallest size, as in 16K");
  add_option(command, "-e,--maxbytes", flags.last_bytes, "BYTES", "largest size, as in 64M");
  CLI::Option* const factor =
      command.add_option("-f,--stepfactor", flags.factor, "factor from one size to the next");
  add_option(command, "-i,--stepbytes", flags.step_bytes, "BYTES",
             "instead of -f: bytes from one size to the next, as in 1M")
      ->excludes(factor);
  command
      .add_option("-d,--datatype", flags.datatype, "type of the elements; all: one after the other")
      ->check(one_of(names_in(kDatatypes)));
  command
      .add_option("-o,--op", flags.op,
                  "how elements are reduced, avg only in floating point; all: one after the other")
      ->check(one_of(names_in(kOps)));
  command.add_option("-n,--iters", flags.iterations, "all-reduces that are timed")
      ->check(CLI::Range(1, 1000000));
  command
      .add_option("-w,--warmup_iters", flags.warm_up, "all-reduces that warm up before, untimed")
      ->check(CLI::Range(0, 1000000));
  command.add_option("-c,--check", flags.check, "check the results (0: don't)")
      ->expected(0, 1)
      ->default_str("")
      ->check(one_of({"", "0", "1"}));
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
                        {"What to reduce", {"-f", "-i", "-d", "-o", "-w", "-c"}},
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
  if (!flags.step_bytes.empty()) {
    constexpr std::size_t kMostSizes = 10000;
    const std::size_t step = parse_bytes("-i", flags.step_bytes);
    require(step >= least && (last - first) / step < kMostSizes, ErrorCode::Usage, "-i",
            "expected at least {} bytes, and at most {} sizes, found {}", least, kMostSizes, step);
    for (std::size_t bytes = first; bytes <= last; bytes += step) sizes.push_back(bytes);
  } else {
    const auto factor = static_cast<std::size_t>(flags.factor);
    for (std::size_t bytes = first;; bytes *= factor) {
      sizes.push_back(bytes);
      if (bytes > last / factor) break;
    }
  }
  require_memory("-e", static_cast<double>(sizes.back()) * flags.num_ranks());
  return sizes;
}

// One measurement after the other: -d all and -o all stand for every type and operation.
std::vector<AllReduceFlags> each_type_and_op(const AllReduceFlags& flags) {
  std::vector<AllReduceFlags> all;
  for (const auto& [datatype, type] : kDatatypes) {
    if (flags.datatype != datatype && flags.datatype != kAll) continue;
    for (const auto& [op, reduce_op] : kOps) {
      const bool is_wanted = flags.op == op || flags.op == kAll;
      if (!is_wanted || (op == "avg" && type.roundoff == 0)) continue;
      all.push_back(flags);
      all.back().datatype = datatype;
      all.back().op = op;
    }
  }
  return all;
}

constexpr const char* kEndingRow = "this row";  // what the first signal waits for

// The table on the terminal, and the rows of --json. Only rank 0 has one.
class Report {
 public:
  // who: "ranks are threads on cpu devices, ...".
  Report(const AllReduceFlags& flags, const CommandLine& command, const std::string& who)
      : flags_(flags),
        out_(flags.json_path == "-" ? stderr : stdout),
        json_(file_head("lockstep.bench-all-reduce/1", command)) {
    json_["rows"] = nlohmann::ordered_json::array();
    const std::vector<std::size_t> sizes = list_sizes(flags);
    const std::string step = flags.step_bytes.empty()
                                 ? fmt::format("{}(factor)", flags.factor)
                                 : fmt::format("{}(bytes)", parse_bytes("-i", flags.step_bytes));
    const std::string range =
        fmt::format("minBytes {} maxBytes {} step: {} warmup iters: {} iters: {}", sizes.front(),
                    sizes.back(), step, flags.warm_up, flags.iterations);
    print_comment(fmt::format("{} {} {} validation: {}",
                              flags.ranks == "threads" ? "nThread" : "nProcess", flags.num_ranks(),
                              range, flags.checks() ? 1 : 0));
    print_comment(who);
    fmt::print(out_, "#\n");
    print_line("#", "size", "count", "type", "op", "plan",
               time_columns("time", "algbw", "busbw", "wrong"));
    print_line("#", "(B)", "", "", "", "", time_columns("(us)", "(GB/s)", "(GB/s)", ""));
    std::fflush(out_);
  }

  // flags: of one type and operation.
  void add(const AllReduceFlags& flags, const comm::Communicator& communicator, Device device,
           std::size_t count, const AllReduceTime& time) {
    const std::size_t num_bytes = count * size_of(flags.element_type());
    const std::string plan(flags.comm == "own" ? plan::to_string(communicator.plan_for(count))
                                               : std::string_view(flags.comm));
    print_line(" ", std::to_string(num_bytes), std::to_string(count), flags.datatype, flags.op,
               plan, count_in(num_bytes, time));
    std::fflush(out_);
    json_["rows"].push_back(
        {{"bytes", num_bytes},
         {"type", flags.datatype},
         {"redop", flags.op},
         {"plan", plan},
         {"device", lockstep::to_string(device.type)},
         {"transport", communicator.transport()},
         {"comm", flags.comm},
         {"ranks", flags.num_ranks()},
         {"iterations", flags.iterations},
         {"warmup_iterations", flags.warm_up},
         {"time_us", time.seconds * 1e6},
         {"algbw_gb_per_s", algbw(num_bytes, time)},
         {"busbw_gb_per_s", busbw(num_bytes, time)},
         {"wrong", flags.checks() ? nlohmann::json(time.num_wrong) : nlohmann::json()}});
  }

  // Prints the table's foot and writes the file, after a signal (0: none) as far as it came.
  // Returns the exit code. Throws Error{Numeric} for wrong values.
  int finish(int signal, std::size_t num_planned) {
    fmt::print(out_, "# Out of bounds values : {} {}\n", num_wrong_,
               num_wrong_ == 0 ? "OK" : "FAILED");
    fmt::print(out_, "# Avg bus bandwidth    : {:.4f}\n", busbw_sum_ / num_times_);
    const int exit_code = end_bench(flags_.json_path, json_, signal, num_planned);
    require(num_wrong_ == 0, ErrorCode::Numeric, "bench", "{} values are wrong", num_wrong_);
    return exit_code;
  }

 private:
  // As nccl-tests defines them, in GB/s.
  static double algbw(std::size_t num_bytes, const AllReduceTime& time) {
    return static_cast<double>(num_bytes) / time.seconds * 1e-9;
  }
  double busbw(std::size_t num_bytes, const AllReduceTime& time) const {
    return algbw(num_bytes, time) * 2 * (flags_.num_ranks() - 1) / flags_.num_ranks();
  }

  void print_line(std::string_view begin, std::string_view size, std::string_view count,
                  std::string_view type, std::string_view op, std::string_view plan,
                  const std::string& times) const {
    // The heading's "#" shares its column with the first digit of sizes from 1 GB.
    fmt::print(out_, "{}{:>{}} {:>9} {:>8} {:>4} {:>16}{}\n", begin == "#" ? "#" : "", size,
               begin == "#" ? 9 : 10, count, type, op, plan, times);
  }

  // Comments stay as narrow as the table.
  void print_comment(const std::string& text) const {
    std::string lines = wrap(text, kTerminalColumns - 2);
    for (std::size_t at = lines.find('\n'); at != std::string::npos;
         at = lines.find('\n', at + 1)) {
      lines.insert(at + 1, "# ");
    }
    fmt::print(out_, "# {}\n", lines);
  }

  std::string time_columns(const std::string& time, const std::string& algbw,
                           const std::string& busbw, const std::string& num_wrong) const {
    return fmt::format(" {:>8} {:>6} {:>6} {:>5}", time, algbw, busbw, num_wrong);
  }

  // Counts a time in the table's foot, and returns its columns.
  std::string count_in(std::size_t num_bytes, const AllReduceTime& time) {
    const auto rounded = [](double number) {  // to 8 characters
      return fmt::format("{:.{}f}", number, number < 99999.995 ? 2 : 0);
    };
    busbw_sum_ += busbw(num_bytes, time);
    num_times_ += 1;
    num_wrong_ += time.num_wrong;
    return time_columns(rounded(time.seconds * 1e6), rounded(algbw(num_bytes, time)),
                        rounded(busbw(num_bytes, time)),
                        flags_.checks() ? std::to_string(time.num_wrong) : "N/A");
  }

  const AllReduceFlags& flags_;
  std::FILE* out_;
  nlohmann::ordered_json json_;
  double busbw_sum_ = 0;
  double num_times_ = 0;
  std::size_t num_wrong_ = 0;
};

// The signal that any of the ranks has seen; 0: none. So all ranks end after the same row.
int signal_of_all(comm::Communicator& communicator, Device device) {
  return static_cast<int>(
      comm::reduce_number(Interruption::signal(), comm::ReduceOp::max, communicator, device));
}

// Measures all types, operations and sizes on one rank, or up to a signal. Returns the exit code.
int measure_all(const AllReduceFlags& flags, comm::Communicator& communicator, Device device,
                Report* report) {
  const std::vector<AllReduceFlags> all = each_type_and_op(flags);
  std::size_t num_planned = 0;
  for (const AllReduceFlags& one : all) num_planned += list_sizes(one).size();
  int signal = 0;
  for (const AllReduceFlags& one : all) {
    const std::vector<std::size_t> sizes = list_sizes(one);
    for (const std::size_t bytes : sizes) {
      if (signal != 0) break;
      if (report) {
        show_status(fmt::format("all-reduce of {} bytes, up to {}", bytes, sizes.back()));
      }
      const std::size_t count = bytes / size_of(one.element_type());
      const AllReduceTime time = measure_all_reduce(one, communicator, device, count);
      signal = signal_of_all(communicator, device);
      if (!report) continue;
      clear_status();
      report->add(one, communicator, device, count, time);
    }
  }
  if (report) return report->finish(signal, num_planned);
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
  std::string who = fmt::format("ranks are threads on {} devices, comm own, {} cores",
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
          {"check", flags.check}};
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
                     fmt::format("ranks are processes on {} devices, {}", lockstep::to_string(type),
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
