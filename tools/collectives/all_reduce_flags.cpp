#include "tools/collectives/all_reduce_flags.h"

#include <map>

#include "engine/core/dtype.h"
#include "engine/core/error.h"
#include "engine/runtime/logical_device.h"
#include "tools/cli/numbers.h"
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

}  // namespace

DType AllReduceFlags::dtype() const {
  return kDatatypes.at(datatype);
}

comm::ReduceOp AllReduceFlags::reduce_op() const {
  return kOps.at(op);
}

void add_all_reduce_flags(CLI::App& app, AllReduceFlags& flags) {
  app.add_option("-b,--minbytes", flags.first_bytes, "smallest size, such as 16K")
      ->capture_default_str();
  app.add_option("-e,--maxbytes", flags.last_bytes, "largest size, such as 64M")
      ->capture_default_str();
  app.add_option("-f,--stepfactor", flags.factor, "between one size and the next")
      ->capture_default_str();
  app.add_option("-d,--datatype", flags.datatype, "float, double, half, bfloat16, int32 or int64")
      ->check(CLI::IsMember(kDatatypes))
      ->capture_default_str();
  app.add_option("-o,--op", flags.op, "sum, prod, min, max or avg (floating point only)")
      ->check(CLI::IsMember(kOps))
      ->capture_default_str();
  app.add_option("-n,--iters", flags.iterations, "all-reduces that are timed")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("-w,--warmup_iters", flags.warm_up, "all-reduces before that")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  app.add_option("-c,--check", flags.check, "check the result (-c 0: do not)")
      ->expected(0, 1)
      ->check(CLI::IsMember({"", "0", "1"}));
  app.add_option("--device", flags.device, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  app.add_option("--virtual-devices", flags.virtual_devices,
                 "several logical devices on one GPU, such as cuda:0*4");
  app.add_option("--devices", flags.num_ranks, "number of ranks, one device each")
      ->check(CLI::Range(1, runtime::kMaxCpuDevices))
      ->capture_default_str();
  add_rank_flags(app, flags);
  app.add_option("--json", flags.json_path, "write the rows here (-: standard output)");
}

std::vector<std::size_t> list_sizes(const AllReduceFlags& flags) {
  const std::size_t first = parse_bytes("-b", flags.first_bytes);
  const std::size_t last = parse_bytes("-e", flags.last_bytes);
  const std::size_t least = size_of(flags.dtype());
  require(first >= least && first <= last, ErrorCode::Usage, "bench",
          "sizes must satisfy {} <= -b <= -e, found -b {} -e {}", least, first, last);
  require(flags.factor >= 2, ErrorCode::Usage, "-f", "must be at least 2, found {}", flags.factor);
  const auto factor = static_cast<std::size_t>(flags.factor);
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = first;; bytes *= factor) {
    sizes.push_back(bytes);
    if (bytes > last / factor) break;
  }
  require_memory("-e", static_cast<double>(sizes.back()) * flags.num_ranks);
  return sizes;
}

}  // namespace lockstep::tools
