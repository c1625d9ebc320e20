// lockstep bench all-reduce: time and bandwidth of all-reduces between ranks, with the columns,
// flags and definitions of nccl-tests: algbw = bytes / time, busbw = algbw * 2(n-1)/n.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>

#include "engine/comm/run_ranks.h"
#include "engine/core/error.h"
#include "engine/runtime/logical_device.h"
#include "tools/cli/numbers.h"
#include "tools/cli/output_path.h"
#include "tools/commands.h"
#include "tools/report/host_info.h"
#include "tools/report/run_file.h"
#include "tools/training/devices.h"

namespace lockstep::tools {
namespace {

struct BenchAllReduceFlags {
  std::string device = "auto";
  std::string virtual_devices;
  std::string first_bytes = "16K";
  std::string last_bytes = "64M";
  int factor = 4;
  int iterations = 20;
  int warm_up = 5;
  std::string check = "0";  // of -c: "" alone, else a number; 0 does not check
  int ranks = 2;
  std::string plan = "auto";
  std::string comm = "own";
  std::string transport = "auto";
  std::string ranks_are = "threads";
  double timeout = 30;
  std::string json_path;

  bool checks() const { return check != "0"; }
};

struct Measurement {
  double seconds = 0;  // mean of an all-reduce, on the slowest rank
  std::size_t num_wrong = 0;
};

// Rank r contributes r + 1 + (i mod 7) in element i, so sums are exact in float.
float contribution(int rank, std::size_t i) {
  return static_cast<float>(rank + 1 + i % 7);
}

std::size_t count_wrong(const Tensor& buffer, int world_size) {
  std::size_t wrong = 0;
  const std::vector<float> values = buffer.to_vector<float>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    float expected = 0;
    for (int rank = 0; rank < world_size; ++rank) expected += contribution(rank, i);
    wrong += values[i] != expected;
  }
  return wrong;
}

Measurement measure(const BenchAllReduceFlags& flags, comm::Communicator& communicator,
                    DeviceType type, std::size_t count) {
  using Clock = std::chrono::steady_clock;
  const Device device{type, communicator.rank()};
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = contribution(communicator.rank(), i);
  const Tensor buffer = Tensor::from(values, {count}, device);
  Measurement result;
  communicator.all_reduce(buffer).wait();
  if (flags.checks()) result.num_wrong = count_wrong(buffer, communicator.world_size());
  // Values double with every further sum; zeros stay zeros and are as fast as any number.
  buffer.fill(0);
  for (int i = 0; i < flags.warm_up; ++i) communicator.all_reduce(buffer).wait();
  buffer.stream().synchronize();
  communicator.barrier().wait();
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < flags.iterations; ++i) communicator.all_reduce(buffer).wait();
  buffer.stream().synchronize();  // on CUDA the work has only been enqueued
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const Tensor slowest = Tensor::from(std::vector<double>{seconds}, {1}, Device{});
  comm::CollectiveOptions longest;
  longest.op = comm::ReduceOp::max;
  communicator.all_reduce(slowest, longest).wait();
  result.seconds = slowest.item() / flags.iterations;
  const Tensor wrong = Tensor::from(
      std::vector<std::int64_t>{static_cast<std::int64_t>(result.num_wrong)}, {1}, Device{});
  communicator.all_reduce(wrong).wait();
  result.num_wrong = static_cast<std::size_t>(wrong.item());
  return result;
}

// The sizes in bytes from -b to -e.
std::vector<std::size_t> list_sizes(const BenchAllReduceFlags& flags) {
  const std::size_t first = parse_bytes("-b", flags.first_bytes);
  const std::size_t last = parse_bytes("-e", flags.last_bytes);
  require(first >= sizeof(float) && first <= last, ErrorCode::Usage, "bench",
          "sizes must satisfy 4 <= -b <= -e, found -b {} -e {}", first, last);
  require(flags.factor >= 2, ErrorCode::Usage, "-f", "must be at least 2, found {}", flags.factor);
  const auto factor = static_cast<std::size_t>(flags.factor);
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = first;; bytes *= factor) {
    sizes.push_back(bytes);
    if (bytes > last / factor) break;
  }
  require_memory("-e", static_cast<double>(sizes.back()) * flags.ranks);
  return sizes;
}

void require_valid(const BenchAllReduceFlags& flags) {
  require_positive("--comm-timeout", flags.timeout);
  require_writable("--json", flags.json_path);
  require(flags.comm == "own", ErrorCode::Usage, "--comm",
          "'{}' is not available in this build; use own", flags.comm);
  require(flags.ranks_are == "threads", ErrorCode::Usage, "--ranks",
          "'{}' is not available in this version; ranks are threads", flags.ranks_are);
  require(flags.transport == "auto" || flags.transport == "thread", ErrorCode::Usage, "--transport",
          "'{}' is not available between threads; use auto or thread", flags.transport);
}

// One device per rank.
DeviceType resolve_devices(const BenchAllReduceFlags& flags) {
  TrainingFlags devices;
  devices.device = flags.device;
  devices.virtual_devices = flags.virtual_devices;
  devices.devices = flags.ranks;
  const DeviceType type = resolve_device_type(devices);
  resolve_devices(devices, type);  // fails where there are not so many
  return type;
}

void run_bench_all_reduce(const BenchAllReduceFlags& flags) {
  require_valid(flags);
  const DeviceType type = resolve_devices(flags);
  const std::vector<std::size_t> sizes = list_sizes(flags);
  std::FILE* const out = flags.json_path == "-" ? stderr : stdout;
  comm::ThreadGroupOptions options;
  options.timeout_seconds = flags.timeout;
  options.default_plan = plan::parse_all_reduce_plan(flags.plan);
  nlohmann::ordered_json json{{"schema", "lockstep.bench/1"},
                              {"host", host_info()},
                              {"rows", nlohmann::ordered_json::array()}};
  fmt::print(out,
             "# nThread {} minBytes {} maxBytes {} step: {}(factor) warmup iters: {} iters: {} "
             "validation: {}\n",
             flags.ranks, sizes.front(), sizes.back(), flags.factor, flags.warm_up,
             flags.iterations, flags.checks() ? 1 : 0);
  fmt::print(out, "# ranks are threads on {} devices, comm own, {} cores\n#\n",
             lockstep::to_string(type), runtime::num_cores());
  fmt::print(out, "# {:>10}  {:>12}  {:>8}  {:>6}  {:>16}  {:>10}  {:>7}  {:>7}  {:>6}\n", "size",
             "count", "type", "redop", "plan", "time", "algbw", "busbw", "#wrong");
  fmt::print(out, "# {:>10}  {:>12}  {:>8}  {:>6}  {:>16}  {:>10}  {:>7}  {:>7}\n", "(B)",
             "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)");
  double total_busbw = 0;
  std::size_t total_wrong = 0;
  comm::run_ranks(
      flags.ranks,
      [&](comm::Communicator& communicator) {
        for (const std::size_t bytes : sizes) {
          const std::size_t count = bytes / sizeof(float);
          const Measurement result = measure(flags, communicator, type, count);
          if (communicator.rank() != 0) continue;
          const plan::AllReducePlan used = communicator.plan_for(count);
          const double algbw = static_cast<double>(count * sizeof(float)) / result.seconds * 1e-9;
          const double busbw = algbw * 2 * (flags.ranks - 1) / flags.ranks;
          fmt::print(
              out, "  {:>10}  {:>12}  {:>8}  {:>6}  {:>16}  {:>10.2f}  {:>7.2f}  {:>7.2f}  {:>6}\n",
              count * sizeof(float), count, "float", "sum", plan::to_string(used),
              result.seconds * 1e6, algbw, busbw,
              flags.checks() ? std::to_string(result.num_wrong) : "N/A");
          std::fflush(out);
          total_busbw += busbw;
          total_wrong += result.num_wrong;
          json["rows"].push_back(
              {{"bytes", count * sizeof(float)},
               {"plan", plan::to_string(used)},
               {"device", lockstep::to_string(type)},
               {"transport", "thread"},
               {"comm", "own"},
               {"ranks", flags.ranks},
               {"time_us", result.seconds * 1e6},
               {"algbw_gbps", algbw},
               {"busbw_gbps", busbw},
               {"wrong", flags.checks() ? nlohmann::json(result.num_wrong) : nlohmann::json()}});
        }
      },
      options);
  fmt::print(out, "# Out of bounds values : {} {}\n", total_wrong,
             total_wrong == 0 ? "OK" : "FAILED");
  fmt::print(out, "# Avg bus bandwidth    : {:.4f}\n",
             total_busbw / static_cast<double>(sizes.size()));
  if (!flags.json_path.empty()) write_json(flags.json_path, json);
  require(total_wrong == 0, ErrorCode::Numeric, "bench", "{} values are wrong", total_wrong);
}

}  // namespace

void add_bench_all_reduce_command(CLI::App& bench) {
  auto flags = std::make_shared<BenchAllReduceFlags>();
  CLI::App* all_reduce = bench.add_subcommand("all-reduce", "Time all-reduces, as nccl-tests does");
  all_reduce->add_option("-b,--minbytes", flags->first_bytes, "smallest size, such as 16K")
      ->capture_default_str();
  all_reduce->add_option("-e,--maxbytes", flags->last_bytes, "largest size, such as 64M")
      ->capture_default_str();
  all_reduce->add_option("-f,--stepfactor", flags->factor, "between one size and the next")
      ->capture_default_str();
  all_reduce->add_option("-n,--iters", flags->iterations, "all-reduces that are timed")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  all_reduce->add_option("-w,--warmup_iters", flags->warm_up, "all-reduces before that")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  all_reduce->add_option("-c,--check", flags->check, "check the result (-c 0: do not)")
      ->expected(0, 1)
      ->check(CLI::IsMember({"", "0", "1"}));
  all_reduce->add_option("--device", flags->device, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  all_reduce->add_option("--virtual-devices", flags->virtual_devices,
                         "several logical devices on one GPU, such as cuda:0*4");
  all_reduce->add_option("--devices", flags->ranks, "number of ranks, one device each")
      ->check(CLI::Range(1, runtime::kMaxCpuDevices))
      ->capture_default_str();
  all_reduce->add_option("--plan", flags->plan, "all-reduce plan, or auto")->capture_default_str();
  all_reduce->add_option("--comm", flags->comm, "who does the collectives: own")
      ->capture_default_str();
  all_reduce->add_option("--transport", flags->transport, "auto or thread")->capture_default_str();
  all_reduce->add_option("--ranks", flags->ranks_are, "who the ranks are: threads")
      ->capture_default_str();
  all_reduce->add_option("--comm-timeout", flags->timeout, "seconds to wait for other ranks")
      ->capture_default_str();
  all_reduce->add_option("--json", flags->json_path, "write the rows here (-: standard output)");
  all_reduce->callback([flags] { run_bench_all_reduce(*flags); });
}

}  // namespace lockstep::tools
