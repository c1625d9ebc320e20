#include "tools/collectives/all_reduce_flags.h"

#include <fmt/format.h>

#include <map>

#include "engine/core/dtype.h"
#include "engine/core/error.h"
#include "engine/runtime/logical_device.h"
#include "tools/cli/command.h"
#include "tools/cli/numbers.h"
#include "tools/cli/training_flags.h"
#include "tools/report/host_info.h"

namespace lockstep::tools {
namespace {

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
  return names;
}

}  // namespace

DType AllReduceFlags::dtype() const {
  return kDatatypes.at(datatype);
}

comm::ReduceOp AllReduceFlags::reduce_op() const {
  return kOps.at(op);
}

void add_all_reduce_flags(Command& command, AllReduceFlags& flags) {
  command.add_option("-b,--minbytes", flags.first_bytes, "smallest size, such as 16K");
  command.add_option("-e,--maxbytes", flags.last_bytes, "largest size, such as 64M");
  const Flag factor =
      command.add_option("-f,--stepfactor", flags.factor, "between one size and the next");
  command
      .add_option("-i,--stepbytes", flags.step_bytes, "between one size and the next, such as 1M")
      .excludes(factor);
  command
      .add_option("-d,--datatype", flags.datatype, "float, double, half, bfloat16, int32 or int64")
      .one_of(names_in(kDatatypes));
  command.add_option("-o,--op", flags.op, "sum, prod, min, max or avg (floating point only)")
      .one_of(names_in(kOps));
  command.add_option("-n,--iters", flags.iterations, "all-reduces that are timed")
      .in_range(1, 1000000);
  command.add_option("-w,--warmup_iters", flags.warm_up, "all-reduces before that")
      .in_range(0, 1000000);
  command.add_option("-c,--check", flags.check, "check the result (-c 0: do not)")
      .value_may_miss()
      .one_of({"", "0", "1"});
  command.add_option("--device", flags.device, "auto, cpu or cuda").one_of({"auto", "cpu", "cuda"});
  command.add_option("--virtual-devices", flags.virtual_devices,
                     "several logical devices on one GPU, such as cuda:0*4");
  const Flag devices =
      command.add_option("--devices", flags.num_ranks, "number of ranks, one device each")
          .in_range(1, runtime::kMaxCpuDevices);
  command
      .add_option("-g,--ngpus", flags.num_gpus, "the same, as nccl-tests says it: of each process")
      .in_range(1, runtime::kMaxCpuDevices)
      .excludes(devices);
  add_rank_flags(command, flags);
  command
      .add_option("--format", flags.format,
                  "the table: lockstep, or nccl-tests, with out-of-place and in-place columns")
      .one_of({"lockstep", "nccl-tests"});
  command.add_option("--json", flags.json_path, "write the rows here (-: standard output)");
  command.add_option("-J,--output_file", flags.output_file,
                     "write the rows as nccl-tests' JSON; a file that is there stays, and FILE.0, "
                     "FILE.1, ... is taken");
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
  const int num_buffers = flags.measures_out_of_place() ? 2 : 1;
  require_memory("-e", static_cast<double>(sizes.back()) * flags.num_ranks * num_buffers);
  return sizes;
}

}  // namespace lockstep::tools
