// The flags of `bench all-reduce`, with the names that nccl-tests gives them, and the measurement
// of one size.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/core/device.h"
#include "tools/ranks/rank_flags.h"

namespace lockstep::tools {

class Command;  // tools/cli/command.h

struct AllReduceFlags : RankFlags {
  std::string device = "auto";
  std::string virtual_devices;
  std::string first_bytes = "16K";
  std::string last_bytes = "64M";
  int factor = 4;
  std::string step_bytes;  // of -i: between one size and the next, instead of the factor
  std::string datatype = "float";
  std::string op = "sum";
  int iterations = 20;
  int warm_up = 5;
  int blocking = 1;
  int local_register = 0;
  std::string check = "0";  // of -c: "" alone, else a number; 0 does not check
  int num_ranks = 2;
  std::optional<int> num_gpus;  // of -g: devices of this process
  std::string format = "lockstep";
  std::string json_path;
  std::string output_file;  // of -J: nccl-tests' own JSON

  bool checks() const { return check != "0"; }
  bool is_nccl_tests() const { return format == "nccl-tests"; }
  // nccl-tests reports it too.
  bool measures_out_of_place() const { return is_nccl_tests() || !output_file.empty(); }
  int gpus_per_process() const { return ranks == "threads" ? num_ranks : 1; }
  DType dtype() const;  // of all: the largest, which decides the least size
  comm::ReduceOp reduce_op() const;
};

// What is measured, one after the other: -d all and -o all stand for every type and operation.
std::vector<AllReduceFlags> each_type_and_op(const AllReduceFlags& flags);

// "4(factor)" or "1048576(bytes)", as nccl-tests writes the step between sizes.
std::string describe_step(const AllReduceFlags& flags);

// --devices is not set unless it is said: inside a job, the launcher has decided.
void add_all_reduce_flags(Command& command, AllReduceFlags& flags);

// The sizes in bytes from -b to -e. Throws Error{Usage} for sizes that make no sense (below one
// element too), or that this machine has no memory for.
std::vector<std::size_t> list_sizes(const AllReduceFlags& flags);

struct AllReduceTime {
  double seconds = 0;         // mean of an all-reduce, on the slowest rank
  std::size_t num_wrong = 0;  // values, over all ranks; 0 where nothing was checked
};

// out_of_place: the sum goes into a buffer beside the input. All-reduces work in place here, so it
// is a copy and an all-reduce of that.
enum class Placement { in_place, out_of_place };

// Every rank calls it alike, with a device of its own. count: elements of flags.dtype().
AllReduceTime measure_all_reduce(const AllReduceFlags& flags, comm::Communicator& communicator,
                                 Device device, std::size_t count,
                                 Placement placement = Placement::in_place);

}  // namespace lockstep::tools
