// Communicator: what the ranks of a group can do together. Read this header first.
//
// Every rank holds its own Communicator and calls the same operations in the same order, with the
// same sizes, dtypes, ops and plans. Calls are numbered from 0 in call order (the sequence number
// in errors and traces). Before any data moves, the ranks compare what each of them called:
//   - a difference is Error{Comm} on every rank, naming the first rank that differs from rank 0 and
//     both calls: "rank 1 called all_reduce #7 of 100 float32 (sum) while rank 0 called ...";
//   - a rank that does not come within timeout_seconds() is Error{Timeout} on the ranks that wait,
//     naming the missing ranks and each rank's last call;
//   - a rank that leaves (its Communicator is destroyed) while others need it is Error{Comm} that
//     names it.
// After such an error the group is broken: every pending and later call of every rank fails with
// that same error.
//
// Order:   calls of one communicator run in call order, also when blocking and asynchronous ones
//          are mixed: a blocking call first waits for the asynchronous ones before it.
// Memory:  tensors are contiguous and in place where the method says so. An asynchronous call keeps
//          its tensors alive; leave them alone until Work::wait() has returned.
// CUDA:    ranks that are threads may use tensors of CUDA devices, all or none of them in a call.
//          They meet on the host like others, and rank 0's thread enqueues the work for all devices
//          (device_group.h). No call waits for a device: a blocking call
//          returns when it is enqueued in the order of the compute stream. An asynchronous one runs
//          on the communication stream after the compute stream's work at the time of the call, and
//          Work::wait() lets the compute stream wait for it.
// Results: bit-identical on all ranks and from run to run, for every plan.
// Threads: one thread at a time calls a communicator (a Work may be used by any).
// Types:   float32, float64, int32, int64; bfloat16 and float16, whose values are combined in float
//          and rounded once per step of the plan that reduces; broadcast, all_gather, send and recv
//          take every dtype.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/comm/work.h"
#include "engine/core/dtype.h"
#include "engine/plan/all_reduce_plan.h"
#include "engine/tensor/tensor.h"

namespace lockstep::comm {

using lockstep::ReduceOp;

// blocking: the operation runs in the calling thread and is done when the call returns (on CUDA: is
// enqueued on the compute stream).
// async: it runs on the communicator's own thread (on CUDA: the device's communication stream).
enum class Launch { blocking, async };

struct CollectiveOptions {
  ReduceOp op = ReduceOp::sum;
  Launch launch = Launch::blocking;
  // For all_reduce only. automatic: the communicator's default plan.
  plan::AllReducePlan plan = plan::AllReducePlan::automatic;
};

struct CollectiveCall;

// Argument errors are Error{Shape}, Error{DType}, Error{Device} or Error{Usage} on the rank that
// made them, before the other ranks hear of the call. n = world_size below.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual std::string description() const = 0;  // "own: two-shot over thread"
  // "thread", "shm"; of a library, which has links of its own, its name
  virtual std::string_view transport() const = 0;

  // In place: every rank's buffer becomes the reduction of all ranks' buffers.
  // Cost: that of the plan, see plan/all_reduce_plan.h; the rank that sends most sends at least
  // 2(n-1)/n * num_bytes.
  Work all_reduce(const Tensor& buffer, const CollectiveOptions& options = {});

  // Every rank's buffer becomes the root's. Cost: the root sends (n-1) * num_bytes (flat), or each
  // rank at most 2 * num_bytes (tree, more than 8 ranks).
  Work broadcast(const Tensor& buffer, int root, Launch launch = Launch::blocking);

  // output = the inputs of ranks 0, 1, ... concatenated along dim 0. The output has n times the
  // input's elements; it must not overlap the input unless the input is this rank's part of it.
  // Cost: each rank sends (n-1) * input bytes.
  Work all_gather(const Tensor& input, const Tensor& output, Launch launch = Launch::blocking);

  // output = part `rank` of the reduction of all inputs, cut into n equal parts along dim 0. The
  // input has n times the output's elements and is not changed; the output must not overlap it.
  // Cost: each rank sends (n-1)/n * input bytes.
  Work reduce_scatter(const Tensor& input, const Tensor& output,
                      const CollectiveOptions& options = {});

  // It is done when every rank has called it.
  Work barrier(Launch launch = Launch::blocking);

  // A message from one rank to another. Only these two take part, so the calls have no collective
  // sequence number; the messages from one rank to another arrive in the order in which they were
  // sent. send is done when the data has been copied out of the tensor, so two ranks may both send
  // first; recv is done when the data has arrived. Both throw Error{Comm} if sizes or dtypes
  // differ.
  // Cost: num_bytes.
  Work send(const Tensor& tensor, int to, Launch launch = Launch::blocking);
  Work recv(const Tensor& tensor, int from, Launch launch = Launch::blocking);

  // Makes all pending and later operations of every rank fail with Error{Comm} that says who
  // aborted and why (over NCCL those of this rank; the others end as nccl/nccl_group.h says).
  // Any thread may call it, at any time. A group that is already broken stays as it is.
  virtual void abort(const std::string& why) = 0;

  // How long an operation waits for its peers. Default: 30. A change applies to later calls.
  double timeout_seconds() const { return timeout_seconds_; }
  void set_timeout_seconds(double seconds);

  // The plan of all_reduce calls that name none. automatic (the default): two_shot if the ranks
  // share their memory (memory_group.h: it meets only twice, so it wins at every size);
  // hierarchical if ranks of one host share memory and hosts are joined by TCP, or if modelled
  // links name hosts; else chosen by world size and number of elements
  // (plan::choose_all_reduce_plan).
  plan::AllReducePlan default_plan() const { return default_plan_; }
  void set_default_plan(plan::AllReducePlan plan) { default_plan_ = plan; }
  // The plan that an all_reduce of this size uses if it names none; automatic only if NCCL
  // chooses.
  virtual plan::AllReducePlan plan_for(std::size_t num_elements) const = 0;

  // The group as trace::Observer::group_made() numbered it; 0: it is not observed.
  std::uint32_t observed_group() const { return observed_group_; }
  void set_observed_group(std::uint32_t group) { observed_group_ = group; }

 protected:
  Communicator() = default;

  // Carries out a call whose arguments have been checked.
  virtual Work submit(CollectiveCall call, Launch launch) = 0;

 private:
  friend class ThroughHost;

  double timeout_seconds_ = 30;
  plan::AllReducePlan default_plan_ = plan::AllReducePlan::automatic;
  std::uint32_t observed_group_ = 0;
};

// A communicator for tensors that inner's links do not reach: it carries them through memory that
// the links do reach. So ranks that are processes and share one GPU reduce over shared memory or
// TCP (device -> host -> other ranks -> host -> device), and NCCL, which only knows GPUs, carries
// the few host tensors that DDP sends beside the gradients. Tensors on a device of `reached`'s type
// are passed on unchanged, all others are copied there and back. Such a call, even an
// asynchronous one, is done when it returns: it does not overlap with anything. That suits checks
// of results and small tensors. reached: where inner's tensors are; every rank names a device of
// the same type.
std::unique_ptr<Communicator> through_host(std::unique_ptr<Communicator> inner, Device reached);

// All-gathers a few integers and concatenates them by rank.
// REQUIRES: every rank calls it with equally many.
std::vector<std::int64_t> gather_numbers(const std::vector<std::int64_t>& mine,
                                         Communicator& communicator);

// Reduces one number per rank. It travels on the ranks' devices, which every communicator reaches.
// REQUIRES: every rank calls it with the same op.
double reduce_number(double mine, ReduceOp op, Communicator& communicator, Device device);

}  // namespace lockstep::comm
