// lockstep bench all-reduce: time and bandwidth of all-reduces between ranks, which are threads or
// processes, with the columns, flags and definitions of nccl-tests:
// algbw = bytes / time, busbw = algbw * 2(n-1)/n, in GB/s.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "engine/comm/thread_group.h"
#include "engine/core/error.h"
#include "engine/runtime/logical_device.h"
#include "tools/cli/command_line.h"
#include "tools/cli/numbers.h"
#include "tools/cli/output_path.h"
#include "tools/collectives/all_reduce_flags.h"
#include "tools/commands.h"
#include "tools/ranks/rank_job.h"
#include "tools/ranks/start_ranks.h"
#include "tools/report/host_info.h"
#include "tools/report/run_file.h"
#include "tools/report/status_line.h"
#include "tools/training/placement.h"

namespace lockstep::tools {
namespace {

void require_valid(const AllReduceFlags& flags) {
  require_positive("--comm-timeout", flags.comm_timeout);
  plan::parse_all_reduce_plan(flags.plan);
  require(flags.op != "avg" || is_floating_point(flags.dtype()), ErrorCode::Usage, "-o",
          "cannot average {}; use sum, or a floating-point type", flags.datatype);
  require_writable({{"--json", flags.json_path}});
  list_sizes(flags);
}

TrainingFlags device_flags(const AllReduceFlags& flags) {
  TrainingFlags devices;
  devices.device = flags.device;
  devices.virtual_devices = flags.virtual_devices;
  devices.devices = flags.num_ranks;
  return devices;
}

// algbw and busbw, as nccl-tests defines them.
struct Bandwidth {
  double algbw = 0;  // GB/s
  double busbw = 0;
};

Bandwidth bandwidth(std::size_t num_bytes, const AllReduceTime& time, int num_ranks) {
  const double algbw = static_cast<double>(num_bytes) / time.seconds * 1e-9;
  return {algbw, algbw * 2 * (num_ranks - 1) / num_ranks};
}

// One size, as one rank measured it. out_of_place: only with --format nccl-tests.
struct Measured {
  std::size_t count = 0;
  AllReduceTime in_place;
  std::optional<AllReduceTime> out_of_place;
};

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
    const std::string range =
        fmt::format("minBytes {} maxBytes {} step: {} warmup iters: {} iters: {}", sizes.front(),
                    sizes.back(), describe_step(flags), flags.warm_up, flags.iterations);
    const int validation = flags.checks() ? 1 : 0;
    if (flags.is_nccl_tests()) {
      fmt::print(out_, "# nThread 1 nGpus {} {} agg iters: 1 validation: {} graph: 0 unalign: 0\n",
                 flags.ranks == "threads" ? flags.num_ranks : 1, range, validation);
      fmt::print(out_, "# {}\n# out-of-place: a copy, then the all-reduce, which works in place\n",
                 who);
      fmt::print(out_, "#\n# {:>53}           {:<34} {:<18}\n", "", "out-of-place", "in-place");
      print_nccl_tests_heading("size", "count", "type", "redop", "root", "time", "algbw", "busbw",
                               "#wrong");
      print_nccl_tests_heading("(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "");
    } else {
      fmt::print(out_, "# {} {} {} validation: {}\n# {}\n#\n",
                 flags.ranks == "threads" ? "nThread" : "nProcess", flags.num_ranks, range,
                 validation, who);
      fmt::print(out_, "# {:>10}  {:>12}  {:>8}  {:>6}  {:>16}  {:>10}  {:>7}  {:>7}  {:>6}\n",
                 "size", "count", "type", "redop", "plan", "time", "algbw", "busbw", "#wrong");
      fmt::print(out_, "# {:>10}  {:>12}  {:>8}  {:>6}  {:>16}  {:>10}  {:>7}  {:>7}\n", "(B)",
                 "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)");
    }
    std::fflush(out_);
  }

  // flags: of one type and operation.
  void add(const AllReduceFlags& flags, const comm::Communicator& communicator, Device device,
           const Measured& measured) {
    const std::size_t num_bytes = measured.count * size_of(flags.dtype());
    const AllReduceTime& time = measured.in_place;
    const std::string plan(flags.comm == "own"
                               ? plan::to_string(communicator.plan_for(measured.count))
                               : std::string_view(flags.comm));
    const Bandwidth rate = count_in(num_bytes, time);
    if (measured.out_of_place) {
      count_in(num_bytes, *measured.out_of_place);
      fmt::print(out_, "{:>12}  {:>12}  {:>8}  {:>6}  {:>6}{}{}\n", num_bytes, measured.count,
                 flags.datatype, flags.op, -1,
                 nccl_tests_columns(num_bytes, *measured.out_of_place),
                 nccl_tests_columns(num_bytes, time));
    } else {
      fmt::print(out_,
                 "  {:>10}  {:>12}  {:>8}  {:>6}  {:>16}  {:>10.2f}  {:>7.2f}  {:>7.2f}  {:>6}\n",
                 num_bytes, measured.count, flags.datatype, flags.op, plan, time.seconds * 1e6,
                 rate.algbw, rate.busbw, flags.checks() ? std::to_string(time.num_wrong) : "N/A");
    }
    std::fflush(out_);
    json_["rows"].push_back(
        {{"bytes", num_bytes},
         {"type", flags.datatype},
         {"redop", flags.op},
         {"plan", plan},
         {"device", lockstep::to_string(device.type)},
         {"transport", communicator.transport()},
         {"comm", flags.comm},
         {"ranks", flags.num_ranks},
         {"iterations", flags.iterations},
         {"warmup_iterations", flags.warm_up},
         {"time_us", time.seconds * 1e6},
         {"algbw_gb_per_s", rate.algbw},
         {"busbw_gb_per_s", rate.busbw},
         {"wrong", flags.checks() ? nlohmann::json(time.num_wrong) : nlohmann::json()}});
  }

  // Prints the table's foot and writes the file. Throws Error{Numeric} for wrong values.
  void finish() const {
    fmt::print(out_, "# Out of bounds values : {} {}\n", num_wrong_,
               num_wrong_ == 0 ? "OK" : "FAILED");
    fmt::print(out_, "# Avg bus bandwidth    : {:.4f}\n", busbw_sum_ / num_times_);
    if (!flags_.json_path.empty()) write_json(flags_.json_path, json_);
    require(num_wrong_ == 0, ErrorCode::Numeric, "bench", "{} values are wrong", num_wrong_);
  }

 private:
  void print_nccl_tests_heading(const char* size, const char* count, const char* type,
                                const char* op, const char* root, const char* time,
                                const char* rate, const char* bus, const char* wrong) const {
    fmt::print(out_, "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", size, count, type, op, root);
    for (int i = 0; i < 2; ++i) {
      fmt::print(out_, "  {:>7}  {:>6}  {:>6}  {:>6}", time, rate, bus, wrong);
    }
    fmt::print(out_, " \n");
  }

  std::string nccl_tests_columns(std::size_t num_bytes, const AllReduceTime& time) const {
    const Bandwidth rate = bandwidth(num_bytes, time, flags_.num_ranks);
    return fmt::format("  {:>7.2f}  {:>6.2f}  {:>6.2f}  {:>6}", time.seconds * 1e6, rate.algbw,
                       rate.busbw, flags_.checks() ? std::to_string(time.num_wrong) : "N/A");
  }

  // Counts a time in the table's foot.
  Bandwidth count_in(std::size_t num_bytes, const AllReduceTime& time) {
    const Bandwidth rate = bandwidth(num_bytes, time, flags_.num_ranks);
    busbw_sum_ += rate.busbw;
    num_times_ += 1;
    num_wrong_ += time.num_wrong;
    return rate;
  }

  const AllReduceFlags& flags_;
  std::FILE* out_;
  nlohmann::ordered_json json_;
  double busbw_sum_ = 0;
  double num_times_ = 0;
  std::size_t num_wrong_ = 0;
};

// Measures all types, operations and sizes on one rank.
void measure_all(const AllReduceFlags& flags, comm::Communicator& communicator, Device device,
                 Report* report) {
  for (const AllReduceFlags& one : each_type_and_op(flags)) {
    const std::vector<std::size_t> sizes = list_sizes(one);
    for (const std::size_t bytes : sizes) {
      if (report) {
        show_status(fmt::format("all-reduce of {} bytes, up to {}", bytes, sizes.back()));
      }
      Measured measured{.count = bytes / size_of(one.dtype())};
      const auto measure = [&](Placement placement) {
        return measure_all_reduce(one, communicator, device, measured.count, placement);
      };
      if (one.is_nccl_tests()) measured.out_of_place = measure(Placement::out_of_place);
      measured.in_place = measure(Placement::in_place);
      if (!report) continue;
      clear_status();
      report->add(one, communicator, device, measured);
    }
  }
  if (report) report->finish();
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
  Report report(flags, command, who);
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
          {"format", flags.format}};
}

void bench_as_rank(AllReduceFlags flags, const CommandLine& command) {
  const DeviceType type = resolve_device_type(device_flags(flags));
  run_as_rank(flags, type, common_settings(flags, type), [&](RankJob& rank) {
    flags.comm = rank.comm;
    std::optional<Report> report;
    if (rank.is_first()) {
      report.emplace(flags, command,
                     fmt::format("ranks are processes on {} devices, {}", lockstep::to_string(type),
                                 describe_job(rank)));
    }
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
