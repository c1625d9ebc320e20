#include "tools/collectives/all_reduce_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/core/dtype.h"
#include "engine/core/error.h"
#include "engine/runtime/logical_device.h"
#include "tools/cli/command_line.h"
#include "tools/cli/numbers.h"
#include "tools/cli/training_flags.h"
#include "tools/report/host_info.h"

namespace lockstep::tools {

namespace {

constexpr const char* kAll = "all";

// With nccl-tests' names.
const std::map<std::string, DType> kDatatypes = {
    {"float", DType::float32},     {"double", DType::float64}, {"half", DType::float16},
    {"bfloat16", DType::bfloat16}, {"int32", DType::int32},    {"int64", DType::int64}};
const std::map<std::string, comm::ReduceOp> kOps = {{"sum", comm::ReduceOp::sum},
                                                    {"avg", comm::ReduceOp::average},
                                                    {"prod", comm::ReduceOp::product},
                                                    {"min", comm::ReduceOp::min},
                                                    {"max", comm::ReduceOp::max}};

template <typename T>
std::vector<std::string> names_in(const std::map<std::string, T>& map) {
  std::vector<std::string> names;
  for (const auto& [name, value] : map) names.push_back(name);
  names.push_back(kAll);
  return names;
}

}  // namespace

std::vector<AllReduceFlags> each_type_and_op(const AllReduceFlags& flags) {
  std::vector<AllReduceFlags> all;
  for (const auto& [datatype, type] : kDatatypes) {
    if (flags.datatype != datatype && flags.datatype != kAll) continue;
    for (const auto& [op, reduce_op] : kOps) {
      const bool is_wanted = flags.op == op || flags.op == kAll;
      if (!is_wanted || (op == "avg" && !is_floating_point(type))) continue;
      all.push_back(flags);
      all.back().datatype = datatype;
      all.back().op = op;
    }
  }
  return all;
}

DType AllReduceFlags::dtype() const {
  return datatype == kAll ? DType::float64 : kDatatypes.at(datatype);
}

comm::ReduceOp AllReduceFlags::reduce_op() const {
  return kOps.at(op);
}

void add_all_reduce_flags(CLI::App& command, AllReduceFlags& flags) {
  command.add_option("-b,--minbytes", flags.first_bytes, "smallest size, such as 16K");
  command.add_option("-e,--maxbytes", flags.last_bytes, "largest size, such as 64M");
  CLI::Option* const factor =
      command.add_option("-f,--stepfactor", flags.factor, "factor from one size to the next");
  command
      .add_option("-i,--stepbytes", flags.step_bytes, "bytes from one size to the next, such as 1M")
      ->excludes(factor);
  command
      .add_option("-d,--datatype", flags.datatype,
                  "float, double, half, bfloat16, int32 or int64; all: one after the other")
      ->check(one_of(names_in(kDatatypes)));
  command
      .add_option("-o,--op", flags.op, "sum, prod, min, max or avg (floating point only); or all")
      ->check(one_of(names_in(kOps)));
  command.add_option("-n,--iters", flags.iterations, "timed all-reduces")
      ->check(CLI::Range(1, 1000000));
  command.add_option("-w,--warmup_iters", flags.warm_up, "untimed all-reduces before them")
      ->check(CLI::Range(0, 1000000));
  command.add_option("-c,--check", flags.check, "check the results (0: do not)")
      ->expected(0, 1)
      ->default_str("")
      ->check(one_of({"", "0", "1"}));
  command
      .add_option("-z,--blocking", flags.blocking,
                  "accepted for compatibility with nccl-tests: each all-reduce is waited for")
      ->check(CLI::Range(0, 1));
  command
      .add_option("-R,--local_register", flags.local_register,
                  "accepted for compatibility with nccl-tests: NCCL registers buffers as it likes")
      ->check(CLI::Range(0, 2));
  command.add_option("--device", flags.device, "auto, cpu or cuda")
      ->check(one_of({"auto", "cpu", "cuda"}));
  command.add_option("--virtual-devices", flags.virtual_devices,
                     "several logical devices on one GPU, such as cuda:0*4");
  CLI::Option* const devices =
      command.add_option("--devices", flags.num_ranks, "number of ranks, one device each")
          ->check(CLI::Range(1, runtime::kMaxCpuDevices));
  command.add_option("-g,--ngpus", flags.num_gpus, "the same in nccl-tests' words, per process")
      ->check(CLI::Range(1, runtime::kMaxCpuDevices))
      ->excludes(devices);
  add_rank_flags(command, flags);
  command
      .add_option("--format", flags.format,
                  "the table: lockstep, or nccl-tests (out-of-place and in-place columns)")
      ->check(one_of({"lockstep", "nccl-tests"}));
  command.add_option("--json", flags.json_path, "write the rows here (-: standard output)");
}

std::string describe_step(const AllReduceFlags& flags) {
  return flags.step_bytes.empty() ? fmt::format("{}(factor)", flags.factor)
                                  : fmt::format("{}(bytes)", parse_bytes("-i", flags.step_bytes));
}

std::vector<std::size_t> list_sizes(const AllReduceFlags& flags) {
  const std::size_t first = parse_bytes("-b", flags.first_bytes);
  const std::size_t last = parse_bytes("-e", flags.last_bytes);
  const std::size_t least = size_of(flags.dtype());
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
  const int num_buffers = flags.is_nccl_tests() ? 2 : 1;
  require_memory("-e", static_cast<double>(sizes.back()) * flags.num_ranks * num_buffers);
  return sizes;
}

namespace {

// Rank r contributes 1 or 2 in element i, by the bits of a hash (the finalizer of splitmix64). So a
// value in the wrong place shows, and sums of up to 128 ranks are exact in every type.
double contribution(int rank, std::size_t i) {
  std::uint64_t x = i * 64 + static_cast<std::uint64_t>(rank);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return 1 + static_cast<double>((x >> 63) & 1U);
}

double combine(comm::ReduceOp op, double a, double b) {
  switch (op) {
    case comm::ReduceOp::sum:
    case comm::ReduceOp::average:
      return a + b;
    case comm::ReduceOp::product:
      return a * b;
    case comm::ReduceOp::min:
      return std::min(a, b);
    case comm::ReduceOp::max:
      return std::max(a, b);
  }
  return a;
}

std::vector<double> expected_values(comm::ReduceOp op, int world_size, std::size_t count) {
  std::vector<double> expected(count);
  for (std::size_t i = 0; i < count; ++i) {
    expected[i] = contribution(0, i);
    for (int rank = 1; rank < world_size; ++rank) {
      expected[i] = combine(op, expected[i], contribution(rank, i));
    }
    if (op == comm::ReduceOp::average) expected[i] /= world_size;
  }
  return expected;
}

// Unit roundoff of the arithmetic: the largest relative error of one rounding.
double roundoff(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return 0x1p-53;
    case DType::float32:
      return 0x1p-24;
    case DType::float16:
      return 0x1p-11;
    case DType::bfloat16:
      return 0x1p-8;
    default:
      return 0;
  }
}

std::size_t count_wrong(const Tensor& buffer, comm::ReduceOp op, int world_size) {
  const std::vector<double> found = buffer.to(DType::float64).to_vector<double>();
  // Converts to the type, which may overflow or wrap around as the sum does.
  const std::vector<double> expected =
      Tensor::from(expected_values(op, world_size, found.size()), {found.size()})
          .to(buffer.dtype())
          .to(DType::float64)
          .to_vector<double>();
  // Thirds are not exact: an average may be rounded at every rank, and once more in this
  // conversion.
  const double relative =
      op == comm::ReduceOp::average ? (2 * world_size + 1) * roundoff(buffer.dtype()) : 0;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] == expected[i]) continue;  // also true for infinities
    wrong += !(std::abs(found[i] - expected[i]) <= relative * std::abs(expected[i]));
  }
  return wrong;
}

}  // namespace

AllReduceTime measure_all_reduce(const AllReduceFlags& flags, comm::Communicator& communicator,
                                 Device device, std::size_t count, Placement placement) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = contribution(communicator.rank(), i);
  const Tensor buffer = Tensor::from(values, {count}).to(flags.dtype()).to(device);
  comm::CollectiveOptions options;
  options.op = flags.reduce_op();
  const Tensor input = placement == Placement::out_of_place ? buffer.clone() : Tensor();
  const auto all_reduce = [&] {
    if (input.defined()) buffer.copy_from(input);
    communicator.all_reduce(buffer, options).wait();
  };
  all_reduce();
  std::size_t num_wrong = 0;
  if (flags.checks()) {
    num_wrong = count_wrong(buffer.to(Device{}), options.op, communicator.world_size());
  }
  // A sum doubles the values in every iteration; zeros stay zeros, and are as fast as any number.
  buffer.fill(0);
  if (input.defined()) input.fill(0);
  for (int i = 0; i < flags.warm_up; ++i) all_reduce();
  buffer.stream().synchronize();
  communicator.barrier().wait();
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < flags.iterations; ++i) all_reduce();
  buffer.stream().synchronize();  // on CUDA the work is only enqueued so far
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const double slowest = comm::reduce_number(seconds, comm::ReduceOp::max, communicator, device);
  const double wrong = comm::reduce_number(static_cast<double>(num_wrong), comm::ReduceOp::sum,
                                           communicator, device);
  return {slowest / flags.iterations, static_cast<std::size_t>(std::llround(wrong))};
}

}  // namespace lockstep::tools
