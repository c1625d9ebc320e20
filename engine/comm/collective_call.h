// One call of a collective operation as a value: the caller's arguments, and the part of them that
// the ranks compare before any data moves.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/plan/collective_plan.h"

namespace lockstep::comm {

using Bytes = std::span<const std::byte>;

enum class Operation : std::uint8_t {
  none,  // a rank that has not called anything yet
  all_reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  barrier,
  send,
  recv,
};

// "all_reduce", ...: the name of the method, of trace spans and of counters.
const char* name_of(Operation operation);

// True for send and recv, in which only two ranks take part.
constexpr bool is_point_to_point(Operation operation) {
  return operation == Operation::send || operation == Operation::recv;
}

// True for all_reduce and reduce_scatter.
constexpr bool is_reduction(Operation operation) {
  return operation == Operation::all_reduce || operation == Operation::reduce_scatter;
}

// "sum", "average", ...
std::string_view to_string(ReduceOp op);

// The part of a call that ranks compare; its bytes also travel between processes. num_elements and
// dtype are those of the caller's buffer (of the input, if there is one).
struct CallHeader {
  std::uint64_t sequence = 0;
  std::uint64_t num_elements = 0;
  void* memory = nullptr;  // the caller's; announced for one pass: its Address for peers
  Operation operation = Operation::none;
  DType dtype = DType::float32;
  DeviceType device = DeviceType::cpu;
  ReduceOp op = ReduceOp::sum;                                // reductions only
  plan::AllReducePlan plan = plan::AllReducePlan::automatic;  // all_reduce only
  std::int32_t root = -1;                                     // broadcast's; else -1
};

// True if two ranks made the same call; memory may differ.
bool same_call(const CallHeader& a, const CallHeader& b);

// "all_reduce #7 of 100 float32 (sum)", "broadcast #7 of 100 float32 from rank 2", "barrier #3".
std::string to_string(const CallHeader& header);

// "rank 1 called all_reduce #7 of 100 float32 (sum) while rank 0 called barrier #7". It shows
// plans, or the devices' types, if nothing else differs; for messages, devices if they differ.
std::string describe_difference(int rank, const CallHeader& call, int other_rank,
                                const CallHeader& other_call);

// Throws Error{DType} for elements that cannot be reduced with this op.
void require_reducible(Operation operation, DType dtype, ReduceOp op);

// The least bytes that a rank must send for a call of num_bytes (of its buffer or input), for
// libraries that do not say what they send: 2(n-1)/n * num_bytes for all_reduce and so on.
std::size_t least_bytes_sent(const CallHeader& header, int rank, int world_size);

// The plan of an all_reduce, a broadcast, an all_gather or a reduce_scatter. num_elements: of the
// whole buffer; for an all_gather, of the output. hosts: a number for the host of each rank; empty:
// all ranks reach each other equally well.
plan::CollectivePlan plan_of(const CallHeader& header, int world_size, std::span<const int> hosts,
                             std::size_t num_elements);

struct CollectiveCall {
  CallHeader header;  // sequence and memory are filled in by the communicator that carries it out
  Tensor input;       // the buffer, if there is only one
  Tensor output;      // all_gather's and reduce_scatter's
  int peer = -1;      // send's and recv's
  runtime::Stream* stream = nullptr;  // on which a call on a CUDA device is enqueued
  double timeout_seconds = 0;
};

inline bool is_on_cuda(const CollectiveCall& call) {
  return call.header.device == DeviceType::cuda;
}

inline Bytes bytes_of(const Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.raw()), tensor.num_bytes()};
}

// The sequence numbers of one rank's calls. Collectives are counted together; messages are counted
// for each peer and direction, since only these two ranks know of them.
class CallNumbers {
 public:
  explicit CallNumbers(int world_size)
      : num_sent_(static_cast<std::size_t>(world_size)), num_received_(num_sent_.size()) {}

  // peer: of send and recv.
  std::uint64_t next(Operation operation, int peer) {
    if (!is_point_to_point(operation)) return num_collectives_++;
    auto& counts = operation == Operation::send ? num_sent_ : num_received_;
    return counts[static_cast<std::size_t>(peer)]++;
  }

 private:
  std::uint64_t num_collectives_ = 0;
  std::vector<std::uint64_t> num_sent_;      // to each rank
  std::vector<std::uint64_t> num_received_;  // one for each rank
};

}  // namespace lockstep::comm
