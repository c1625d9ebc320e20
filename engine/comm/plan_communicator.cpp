#include "engine/comm/plan_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/comm/device_calls.h"
#include "engine/comm/direct_all_reduce.h"
#include "engine/comm/long_wait.h"
#include "engine/comm/reduce.h"
#include "engine/comm/transport/link/link_transport.h"
#include "engine/plan/collectives.h"
#include "engine/trace/counters.h"
#include "engine/trace/span.h"

namespace lockstep::comm {
namespace {

// Programs kept; a program that uses more different sizes than this pays for making them again.
constexpr std::size_t kMaxPrograms = 1024;

bool is_point_to_point(Operation operation) {
  return operation == Operation::send || operation == Operation::recv;
}

void require_reachable(const CollectiveCall& call, Transport& transport) {
  if (!is_on_cuda(call) || transport.device_meeting() != nullptr) return;
  fail(ErrorCode::Device, name_of(call.header.operation),
       "the {} transport moves CPU tensors, found {}", transport.name(),
       lockstep::describe(call.input));
}

Bytes bytes_of(const Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.raw()), tensor.num_bytes()};
}

// Of an average; other reductions take the values as they are.
double factor_of(ReduceOp op, int world_size) {
  return op == ReduceOp::average ? 1.0 / world_size : 1.0;
}

// In place, for every dtype that can be reduced.
void multiply(const Reduction& reduction, double factor, TensorView values) {
  const std::array<ConstTensorView, 1> source{values};
  if (factor != 1) reduce_in_order(reduction.stream, ReduceOp::sum, factor, source, values);
}

plan::CollectivePlan plan_of(const CallHeader& header, const Transport& transport,
                             std::size_t num_elements) {
  const int world_size = transport.world_size();
  switch (header.operation) {
    case Operation::all_reduce:
      return transport.hosts().empty()
                 ? plan::all_reduce_plan(header.plan, world_size, num_elements)
                 : plan::all_reduce_plan(header.plan, transport.hosts(), num_elements);
    case Operation::broadcast:
      return plan::broadcast_plan(world_size, num_elements, header.root);
    case Operation::all_gather:
      return plan::all_gather_plan(world_size, num_elements);
    case Operation::reduce_scatter:
      return plan::reduce_scatter_plan(world_size, num_elements);
    default:
      fail(ErrorCode::State, name_of(header.operation), "has no plan");
  }
}

}  // namespace

PlanCommunicator::PlanCommunicator(std::unique_ptr<Transport> transport,
                                   runtime::Worker::Slices slices)
    : transport_(std::move(transport)),
      executor_(*transport_),
      num_sent_(static_cast<std::size_t>(transport_->world_size())),
      num_received_(num_sent_.size()),
      memory_(num_sent_.size()),
      worker_(fmt::format("comm {}", transport_->rank()), slices) {}

std::string PlanCommunicator::description() const {
  return fmt::format("own: {} over {}", plan::to_string(default_plan()), transport_->name());
}

void PlanCommunicator::abort(const std::string& why) {
  transport_->fail(
      Error(ErrorCode::Comm, "abort", fmt::format("rank {} aborted the group: {}", rank(), why)));
}

// Gives the call its number and settles an automatic plan.
void PlanCommunicator::number(CallHeader& header, int peer) {
  if (is_point_to_point(header.operation)) {
    auto& counts = header.operation == Operation::send ? num_sent_ : num_received_;
    header.sequence = counts[static_cast<std::size_t>(peer)]++;
    return;
  }
  header.sequence = num_collectives_++;
  if (header.operation == Operation::all_reduce && header.plan == plan::AllReducePlan::automatic) {
    header.plan = automatic_plan(header.num_elements);
  }
}

plan::AllReducePlan PlanCommunicator::plan_for(std::size_t num_elements) const {
  return default_plan() == plan::AllReducePlan::automatic ? automatic_plan(num_elements)
                                                          : default_plan();
}

// Where ranks share memory, two-shot is one pass over it (direct_all_reduce.h) at every size.
plan::AllReducePlan PlanCommunicator::automatic_plan(std::size_t num_elements) const {
  if (transport_->shares_memory()) return plan::AllReducePlan::two_shot;
  if (!transport_->hosts().empty()) return plan::AllReducePlan::hierarchical;
  return plan::choose_all_reduce_plan(world_size(), num_elements);
}

Work PlanCommunicator::submit(CollectiveCall call, Launch launch) {
  require_reachable(call, *transport_);
  number(call.header, call.peer);
  call.header.memory = call.input.defined() ? call.input.raw() : nullptr;
  if (launch == Launch::blocking) {
    const auto follows_async = last_async_ == nullptr ? FollowsAsync::no : FollowsAsync::yes;
    if (last_async_ != nullptr) {
      last_async_->wait_until_issued();
      last_async_ = nullptr;
    }
    put_on_stream(call, launch, follows_async);
    run(call);
    return {};
  }
  put_on_stream(call, launch, FollowsAsync::yes);
  auto work = std::make_shared<AsyncWork>(call.header, transport_);
  last_async_ = work;
  worker_.post([this, work, call = std::move(call), context = thread_context(),
                track = trace::current_track()]() mutable {
    const ThreadContextScope context_scope(context);
    const trace::TrackScope track_scope(track);
    std::exception_ptr error;
    StreamPoint on_device;
    try {
      run(call);
      if (is_on_cuda(call)) on_device = {call.stream->record(), &call.input.stream()};
    } catch (...) {
      error = std::current_exception();
    }
    call = {};  // lets go of the tensors before anybody hears that it is done
    work->finish(std::move(error), std::move(on_device));
  });
  return Work(std::move(work));
}

void PlanCommunicator::run(const CollectiveCall& call) {
  const char* name = name_of(call.header.operation);
  trace::ScopedSpan span(trace::Lane::comm, trace::Category::communication, name,
                         call.header.num_elements * size_of(call.header.dtype));
  span.set_sequence(static_cast<std::int64_t>(call.header.sequence));
  if (call.trace_flow != 0) span.pass_flow(call.trace_flow);
  if (is_point_to_point(call.header.operation)) {
    trace::count_collective(rank(), name, run_point_to_point(call));
    return;
  }
  const MeetingPart part(*transport_, call);
  transport_->announce(call.header, call.timeout_seconds);
  const WatchedCall watched(*transport_, call.header);
  try {
    compare_calls(call.header);
    transport_->begin_data();
    const std::size_t num_bytes_sent = is_on_cuda(call)    ? move_on_devices(call)
                                       : world_size() == 1 ? copy_alone(call)
                                                           : move_data(call);
    transport_->end_data();
    trace::count_collective(rank(), name, num_bytes_sent);
  } catch (const Error& error) {
    transport_->abandon(error);
    drain(call);
    throw;
  } catch (const std::exception& error) {
    transport_->abandon(Error(ErrorCode::State, name, error.what()));
    drain(call);
    throw;
  }
}

void PlanCommunicator::compare_calls(const CallHeader& mine) {
  const CallHeader first = rank() == 0 ? mine : transport_->announced_by(0);
  for (int peer = 0; peer < world_size(); ++peer) {
    const CallHeader theirs = peer == rank() ? mine : transport_->announced_by(peer);
    if (!same_call(first, theirs)) {
      transport_->fail(
          Error(ErrorCode::Comm, "collective", describe_difference(first, peer, theirs)));
      transport_->throw_if_failed();
    }
    memory_[static_cast<std::size_t>(peer)] = theirs.memory;
  }
}

// In a group of one, every reduction and every gathering is a copy at most.
std::size_t PlanCommunicator::copy_alone(const CollectiveCall& call) {
  const bool has_output = call.output.defined() && !call.output.shares_memory_with(call.input);
  if (has_output) call.output.copy_from(call.input.reshape(call.output.shape()));
  return 0;
}

std::size_t PlanCommunicator::move_on_devices(const CollectiveCall& call) {
  enqueue_collective(*transport_, call.header);
  const CallHeader& header = call.header;
  const bool is_gather = header.operation == Operation::all_gather;
  const std::size_t num_elements = is_gather ? call.output.num_elements() : header.num_elements;
  const bool is_direct =
      header.operation == Operation::all_reduce && header.plan == plan::AllReducePlan::two_shot;
  return size_of(header.dtype) *
         (is_direct ? direct_all_reduce_elements_sent(rank(), world_size(), num_elements)
                    : program_of(header, num_elements).num_elements_sent);
}

std::size_t PlanCommunicator::move_data(const CollectiveCall& call) {
  switch (call.header.operation) {
    case Operation::all_reduce:
      return all_reduce_data(call);
    case Operation::all_gather:
      return all_gather_data(call);
    case Operation::reduce_scatter:
      return reduce_scatter_data(call);
    case Operation::barrier:
      return 0;  // comparing the calls was one
    default:
      return run_plan(call.header, call.input.view(), {call.input.stream()});
  }
}

std::size_t PlanCommunicator::all_reduce_data(const CollectiveCall& call) {
  const TensorView buffer = call.input.view();
  const Reduction reduction{call.input.stream(), call.header.op};
  const double factor = factor_of(reduction.op, world_size());
  if (call.header.plan == plan::AllReducePlan::two_shot && transport_->shares_memory()) {
    direct_all_reduce(reduction, factor, rank(), memory_, buffer.dtype, buffer.num_elements);
    transport_->finish_shared();
    return direct_all_reduce_elements_sent(rank(), world_size(), buffer.num_elements) *
           size_of(buffer.dtype);
  }
  const bool is_cut = plan::sums_in_rank_order(call.header.plan);
  const std::size_t pass_elements =
      is_cut ? transport_->pass_bytes() / size_of(buffer.dtype) : buffer.num_elements;
  std::size_t num_bytes_sent = 0;
  for (std::size_t begin = 0; begin < buffer.num_elements; begin += pass_elements) {
    const std::size_t count = std::min(pass_elements, buffer.num_elements - begin);
    const TensorView pass{static_cast<std::byte*>(buffer.data) + begin * size_of(buffer.dtype),
                          buffer.dtype, count};
    multiply(reduction, factor, pass);
    num_bytes_sent += run_plan(call.header, pass, reduction);
  }
  return num_bytes_sent;
}

std::size_t PlanCommunicator::all_gather_data(const CollectiveCall& call) {
  const std::size_t num_elements = call.input.num_elements();
  const Tensor mine =
      call.output.slice(static_cast<std::size_t>(rank()) * num_elements, call.input.shape());
  if (!mine.shares_memory_with(call.input)) mine.copy_from(call.input);
  return run_plan(call.header, call.output.view(), {call.output.stream()});
}

std::size_t PlanCommunicator::reduce_scatter_data(const CollectiveCall& call) {
  const Reduction reduction{call.input.stream(), call.header.op};
  const double factor = factor_of(reduction.op, world_size());
  const Tensor whole = call.input.clone();
  const TensorView view = whole.view();
  multiply(reduction, factor, view);
  const std::size_t num_bytes_sent = run_plan(call.header, view, reduction);
  const std::size_t num_elements = call.output.num_elements();
  call.output.copy_from(
      whole.slice(static_cast<std::size_t>(rank()) * num_elements, call.output.shape()));
  return num_bytes_sent;
}

std::size_t PlanCommunicator::run_plan(const CallHeader& header, TensorView buffer,
                                       const Reduction& reduction) {
  const RankProgram& program = program_of(header, buffer.num_elements);
  executor_.run(program, buffer, reduction);
  return program.num_elements_sent * size_of(buffer.dtype);
}

const RankProgram& PlanCommunicator::program_of(const CallHeader& header,
                                                std::size_t num_elements) {
  const ProgramKey key{header.operation, header.plan, header.root, num_elements};
  const auto found = programs_.find(key);
  if (found != programs_.end()) return found->second;
  if (programs_.size() >= kMaxPrograms) programs_.clear();
  const plan::CollectivePlan plan = plan_of(header, *transport_, num_elements);
  return programs_.emplace(key, rank_program(plan, rank())).first->second;
}

std::size_t PlanCommunicator::run_point_to_point(const CollectiveCall& call) {
  const bool is_send = call.header.operation == Operation::send;
  if (is_on_cuda(call)) {
    (is_send ? send_from_device : receive_on_device)(*transport_, call);
    return is_send ? call.input.num_bytes() : 0;
  }
  if (is_send) {
    transport_->send_message(call.peer, call.header, bytes_of(call.input));
    return call.input.num_bytes();
  }
  transport_->receive_message(call.peer, call.header,
                              {static_cast<std::byte*>(call.input.raw()), call.input.num_bytes()},
                              call.timeout_seconds);
  return 0;
}

std::unique_ptr<PlanCommunicator> make_plan_communicator(std::unique_ptr<Transport> transport,
                                                         const std::optional<LinkSpec>& link) {
  if (!link) return std::make_unique<PlanCommunicator>(std::move(transport));
  return std::make_unique<PlanCommunicator>(
      std::make_unique<LinkTransport>(std::move(transport), *link),
      runtime::Worker::Slices::prompt);
}

}  // namespace lockstep::comm
