#include "engine/comm/nccl/nccl_communicator.h"

#include <fmt/format.h>

#include <cstdlib>

#include "engine/comm/comm_errors.h"
#include "engine/comm/device_calls.h"
#include "engine/comm/grouped/group_executor.h"
#include "engine/comm/nccl/nccl_group.h"
#include "engine/comm/nccl/nccl_library.h"
#include "engine/comm/nccl/nccl_types.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/physical_gpus.h"
#include "engine/trace/counters.h"
#include "engine/trace/span.h"

namespace lockstep::comm {
namespace nccl {
namespace {

// How long a rank that leaves lets NCCL take its leave.
constexpr double kCloseSeconds = 5;

// A collective that moves data, as NCCL's call. The tensors must outlive it.
NamedCall named_call(const CollectiveCall& call) {
  const CallHeader& header = call.header;
  const std::size_t count = header.num_elements;
  const ncclDataType_t type = nccl_type(header.dtype);
  const ncclRedOp_t op = nccl_op(header.op);
  const int root = header.root;
  cudaStream_t stream = runtime::cuda::cuda_stream(*call.stream).handle();
  void* input = call.input.raw();
  void* output = call.output.defined() ? call.output.raw() : nullptr;
  switch (header.operation) {
    case Operation::all_reduce:
      return {"ncclAllReduce", [=](ncclComm_t comm) {
                return library().all_reduce(input, input, count, type, op, comm, stream);
              }};
    case Operation::broadcast:
      return {"ncclBroadcast", [=](ncclComm_t comm) {
                return library().broadcast(input, input, count, type, root, comm, stream);
              }};
    case Operation::all_gather:
      return {"ncclAllGather", [=](ncclComm_t comm) {
                return library().all_gather(input, output, count, type, comm, stream);
              }};
    case Operation::reduce_scatter: {
      const std::size_t part = call.output.num_elements();
      return {"ncclReduceScatter", [=](ncclComm_t comm) {
                return library().reduce_scatter(input, output, part, type, op, comm, stream);
              }};
    }
    default:
      fail(ErrorCode::State, name_of(header.operation), "is no collective that moves data");
  }
}

}  // namespace

NcclCommunicator::NcclCommunicator(const NcclGroupOptions& options, const Meeting& meeting)
    : options_(options),
      description_(fmt::format("nccl {}{}", version_of(library()),
                               meeting.shares_gpus ? ", ranks share a GPU: not for timing" : "")),
      device_(runtime::logical_device(options.device)),
      watch_(std::make_shared<Watch>(options,
                                     runtime::cuda::cuda_stream(device_.comm_stream()).fault())),
      comm_(std::make_shared<Comm>(device_.gpu(), options.world_size, meeting.id, options.rank)),
      barrier_value_(Tensor::zeros({1}, DType::int32, options.device)),
      numbers_(options.world_size) {
  set_timeout_seconds(options.timeout_seconds);
  watch_->add(comm_);
  comm_->wait_until_ready(watch_->check_of({}, options.timeout_seconds));
}

NcclCommunicator::~NcclCommunicator() {
  for (const auto& [to, link] : links_) link->finish();
  const runtime::Deadline deadline = runtime::deadline_after(kCloseSeconds);
  const Comm::Check check = [&] {
    require(!runtime::has_passed(deadline), ErrorCode::Timeout, "nccl",
            "did not finish its communicator");
  };
  try {
    watch_->leave(numbers_.num_collectives());
    if (watch_->has_failed()) return;
    for (const auto& [to, link] : links_) link->close(check);
    comm_->close(check);
  } catch (const Error&) {
    // Comm aborts what could not be closed.
  }
}

void NcclCommunicator::abort(const std::string& why) {
  watch_->break_group(aborted_by(rank(), why));
}

void NcclCommunicator::require_here(const CollectiveCall& call) const {
  const char* name = name_of(call.header.operation);
  require(!call.input.defined() || call.input.device() == options_.device, ErrorCode::Device, name,
          "this rank's NCCL communicator serves {}, found {}", to_string(options_.device),
          lockstep::describe(call.input));
  require(call.header.plan == plan::AllReducePlan::automatic, ErrorCode::Usage, name,
          "NCCL chooses its own algorithm, found the plan {}; use --plan auto, or --comm own",
          plan::to_string(call.header.plan));
  require(call.peer != rank(), ErrorCode::Usage, name,
          "NCCL takes no message from a rank to itself; copy the tensor");
}

Work NcclCommunicator::submit(CollectiveCall call, Launch launch) {
  return run({&call, 1}, launch);
}

Work NcclCommunicator::submit_together(std::vector<CollectiveCall> calls, Launch launch) {
  return run(calls, launch);
}

// Calls of one operation that a caller gave at once; several only of collectives that move data.
Work NcclCommunicator::run(std::span<CollectiveCall> calls, Launch launch) {
  CollectiveCall& first = calls.front();
  const char* name = name_of(first.header.operation);
  std::size_t num_bytes = 0;
  for (const CollectiveCall& call : calls) {
    require_here(call);
    num_bytes += call.header.num_elements * size_of(call.header.dtype);
  }
  trace::ScopedSpan span(trace::Lane::comm, trace::Category::communication, name, num_bytes);
  if (first.trace_flow != 0) span.pass_flow(first.trace_flow);
  watch_->throw_if_failed();
  for (CollectiveCall& call : calls) {
    call.header.sequence = numbers_.next(call.header.operation, call.peer);
    trace::count_collective(rank(), name, least_bytes_sent(call.header, rank(), world_size()));
  }
  span.set_sequence(static_cast<std::int64_t>(first.header.sequence));
  watch_->begin(calls);
  if (is_point_to_point(first.header.operation)) return run_message(first, launch);
  if (first.header.operation != Operation::barrier) return run_collectives(calls, launch);
  barrier(first);
  return {};
}

Work NcclCommunicator::run_collectives(std::span<CollectiveCall> calls, Launch launch) {
  put_on_stream(calls, launch, has_async_work_ ? FollowsAsync::yes : FollowsAsync::no);
  has_async_work_ = launch == Launch::async;
  enqueue(calls);
  const CollectiveCall& last = calls.back();
  const std::shared_ptr<runtime::Event> done = last.stream->record();
  // A graph's events pass in no run that could be watched.
  if (!runtime::cuda::cuda_stream(*last.stream).is_capturing()) {
    watch_->add(last.header, done, last.timeout_seconds);
  }
  if (launch == Launch::blocking) return {};
  auto work = std::make_shared<NcclWork>(last.header, watch_);
  work->finish(nullptr, {done, &device_.compute_stream()});
  return Work(std::move(work));
}

void NcclCommunicator::enqueue(std::span<const CollectiveCall> calls) {
  std::vector<NamedCall> named;
  for (const CollectiveCall& call : calls) {
    if (call.header.num_elements > 0) named.push_back(named_call(call));
  }
  if (named.empty()) return;
  const Comm::Check check = watch_->check_of(calls.back().header, calls.back().timeout_seconds);
  try {
    if (named.size() == 1) {
      comm_->call(named.front(), check);
    } else {
      comm_->call_group(named, check);
    }
  } catch (const Error& error) {
    watch_->break_group(error);
    throw;
  }
}

// NCCL has no barrier: the sum of one number is known when every rank has come. The host waits.
void NcclCommunicator::barrier(CollectiveCall& call) {
  CollectiveCall sum = call;
  sum.header.operation = Operation::all_reduce;
  sum.header.num_elements = 1;
  sum.header.dtype = DType::int32;
  sum.header.device = DeviceType::cuda;
  sum.input = barrier_value_;
  put_on_stream(sum, Launch::async, FollowsAsync::yes);
  enqueue({&sum, 1});
  const std::shared_ptr<runtime::Event> done = sum.stream->record();
  watch_->add(call.header, done, call.timeout_seconds);
  // Not without end, since an event of a GPU that has failed may be waited for for ever.
  while (!done->wait(runtime::deadline_after(1))) watch_->throw_if_failed();
  watch_->throw_if_failed();
}

Work NcclCommunicator::run_message(CollectiveCall& call, Launch launch) {
  put_on_stream(call, launch, has_async_work_ ? FollowsAsync::yes : FollowsAsync::no);
  const bool is_send = call.header.operation == Operation::send;
  Tensor memory = call.input;
  if (is_send) {
    // A copy, so that the call is done without its receiver.
    memory = Tensor::empty(call.input.shape(), call.input.dtype(), call.input.device());
    runtime::Stream& compute = call.input.stream();
    if (call.stream != &compute) {
      // The pool gives out what earlier work of the compute stream may still use.
      call.stream->wait(compute.record());
      memory.storage()->record_use(*call.stream);
    }
    copy_on_stream(*call.stream, call.input.view(), memory.view());
  }
  auto work = std::make_shared<NcclWork>(call.header, watch_);
  const Link::End end = is_send ? Link::End::sender : Link::End::receiver;
  link_to(call.peer, end).post(call, memory, call.stream->record(), work);
  if (!is_send) {
    if (launch == Launch::blocking) work->wait({});
    return launch == Launch::blocking ? Work{} : Work(std::move(work));
  }
  if (launch == Launch::blocking) return {};
  auto copied = std::make_shared<NcclWork>(call.header, watch_);
  copied->finish(nullptr, {call.stream->record(), &device_.compute_stream()});
  return Work(std::move(copied));
}

Link& NcclCommunicator::link_to(int peer, Link::End end) {
  std::unique_ptr<Link>& link = links_[{peer, end}];
  if (link == nullptr) {
    const int from = end == Link::End::sender ? rank() : peer;
    const int to = end == Link::End::sender ? peer : rank();
    link = std::make_unique<Link>(end, key_of(options_, fmt::format("link/{}/{}", from, to)),
                                  options_.store, device_, watch_);
  }
  return *link;
}

}  // namespace nccl

bool has_nccl() {
  return true;
}

const std::string& no_nccl_reason() {
  static const std::string reason;
  return reason;
}

std::unique_ptr<Communicator> make_nccl_communicator(const NcclGroupOptions& options) {
  require(options.world_size >= 1 && options.rank >= 0 && options.rank < options.world_size,
          ErrorCode::Usage, "nccl",
          "the rank must be in 0 ... world size - 1, found rank {} and world size {}", options.rank,
          options.world_size);
  require(options.store != nullptr, ErrorCode::Usage, "nccl", "ranks need a store to meet");
  require(options.device.type == DeviceType::cuda, ErrorCode::Device, "nccl",
          "NCCL serves CUDA devices, found {}; use --comm own", to_string(options.device));
  if (options.sharing == GpuSharing::allow) {
    // Before NCCL is called at all: it reads its environment once.
    setenv("NCCL_HOSTID", fmt::format("lockstep-rank-{}", options.rank).c_str(), 1);
  }
  const int gpu = runtime::logical_device(options.device).gpu();
  const nccl::Meeting meeting =
      nccl::meet(options, runtime::physical_gpus()[static_cast<std::size_t>(gpu)].uuid);
  return std::make_unique<nccl::NcclCommunicator>(options, meeting);
}

}  // namespace lockstep::comm
