// The flags of `bench all-reduce`, with the names that nccl-tests gives them, and the measurement
// of one size.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/core/device.h"
#include "tools/ranks/rank_flags.h"

namespace CLI {
class App;
}

namespace lockstep::tools {

struct AllReduceFlags : RankFlags {
  std::string device = "auto";
  std::string virtual_devices;
  std::string first_bytes = "16K";
  std::string last_bytes = "64M";
  int factor = 4;
  std::string step_bytes;  // -i: the step between sizes, instead of the factor
  std::string datatype = "float";
  std::string op = "sum";
  int iterations = 20;
  int warm_up = 5;
  std::string check = "0";  // -c: "" alone, else a number; 0 does not check
  int num_ranks = 2;
  std::optional<int> num_gpus;  // -g: devices of this process
  int blocking = 1;
  int local_register = 0;
  std::string format = "lockstep";
  std::string json_path;

  bool checks() const { return check != "0"; }
  bool is_nccl_tests() const { return format == "nccl-tests"; }
  DType dtype() const;  // for "all", the largest, which sets the smallest size
  comm::ReduceOp reduce_op() const;
};

// One measurement after the other: -d all and -o all stand for every type and operation.
std::vector<AllReduceFlags> each_type_and_op(const AllReduceFlags& flags);

// "4(factor)" or "1048576(bytes)", as nccl-tests writes the step between sizes.
std::string describe_step(const AllReduceFlags& flags);

// --devices stays unset unless the user gives it: inside a job, the launcher has decided.
void add_all_reduce_flags(CLI::App& command, AllReduceFlags& flags);

// The sizes in bytes from -b to -e. Throws Error{Usage} for sizes that make no sense, are below one
// element, or exceed this machine's memory.
std::vector<std::size_t> list_sizes(const AllReduceFlags& flags);

struct AllReduceTime {
  double seconds = 0;         // mean of an all-reduce, on the slowest rank
  std::size_t num_wrong = 0;  // values over all ranks; 0 if nothing was checked
};

// out_of_place: the sum goes into a separate buffer. All-reduces work in place here, so this copies
// the input and all-reduces the copy.
enum class Placement { in_place, out_of_place };

// Every rank calls it alike, with a device of its own. count: elements of flags.dtype().
AllReduceTime measure_all_reduce(const AllReduceFlags& flags, comm::Communicator& communicator,
                                 Device device, std::size_t count, Placement placement);

}  // namespace lockstep::tools
