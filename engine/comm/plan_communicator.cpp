#include "engine/comm/plan_communicator.h"

#include <fmt/format.h>

#include "engine/comm/comm_errors.h"
#include "engine/comm/device_calls.h"
#include "engine/comm/message_group.h"
#include "engine/comm/slow_collective_notice.h"
#include "engine/trace/counters.h"
#include "engine/trace/span.h"

namespace lockstep::comm {
namespace {

void require_reachable(const CollectiveCall& call, const GroupShape& shape) {
  if (!is_on_cuda(call) || shape.shares_memory) return;
  fail(ErrorCode::Device, name_of(call.header.operation),
       "the {} transport moves CPU tensors, found {}", shape.name, lockstep::describe(call.input));
}

// A thread that spins would take the cores that compute while modelled messages are under way.
runtime::Worker::Slices slices_for(const GroupShape& shape) {
  return shape.has_links ? runtime::Worker::Slices::prompt : runtime::Worker::Slices::ordinary;
}

}  // namespace

PlanCommunicator::PlanCommunicator(std::unique_ptr<Group> group)
    : group_(std::move(group)),
      numbers_(group_->world_size()),
      memory_(static_cast<std::size_t>(group_->world_size())),
      async_(fmt::format("comm {}", group_->rank()), slices_for(group_->shape())) {}

PlanCommunicator::PlanCommunicator(std::unique_ptr<Transport> transport,
                                   std::unique_ptr<LinkModel> links)
    : PlanCommunicator(std::make_unique<MessageGroup>(std::move(transport), std::move(links))) {}

PlanCommunicator::~PlanCommunicator() {
  trace::Observer* const observer = trace::observer();
  if (observer != nullptr && observed_group() != 0) observer->group_left(observed_group(), rank());
}

std::string PlanCommunicator::description() const {
  return fmt::format("own: {} over {}", plan::to_string(default_plan()), transport());
}

void PlanCommunicator::abort(const std::string& why) {
  group_->fail(aborted_by(rank(), why));
}

plan::AllReducePlan PlanCommunicator::plan_for(std::size_t num_elements) const {
  return default_plan() == plan::AllReducePlan::automatic ? automatic_plan(num_elements)
                                                          : default_plan();
}

// For ranks that share memory, two-shot is one pass over it at every size
// (shared_memory_all_reduce.h).
plan::AllReducePlan PlanCommunicator::automatic_plan(std::size_t num_elements) const {
  if (group_->shape().shares_memory) return plan::AllReducePlan::two_shot;
  if (!group_->shape().hosts.empty()) return plan::AllReducePlan::hierarchical;
  return plan::choose_all_reduce_plan(world_size(), num_elements);
}

Work PlanCommunicator::submit(CollectiveCall call, Launch launch) {
  require_reachable(call, group_->shape());
  CallHeader& header = call.header;
  header.sequence = numbers_.next(header.operation, call.peer);
  header.memory = call.input.defined() ? call.input.raw() : nullptr;
  if (header.operation == Operation::all_reduce && header.plan == plan::AllReducePlan::automatic) {
    header.plan = automatic_plan(header.num_elements);
  }
  group_->note_call(header);
  tell(call, launch, trace::Moment::begins);
  if (launch == Launch::blocking) {
    put_on_stream(call, launch, async_.finish() ? FollowsAsync::yes : FollowsAsync::no);
    run(call);
    return {};
  }
  put_on_stream(call, launch, FollowsAsync::yes);
  return async_.start(std::move(call), group_, [this](const CollectiveCall& c) { run(c); });
}

void PlanCommunicator::tell(const CollectiveCall& call, Launch launch, trace::Moment moment) const {
  trace::Observer* const observer = trace::observer();
  if (observer == nullptr || observed_group() == 0) return;
  const CallHeader& header = call.header;
  trace::Call told;
  told.group = observed_group();
  told.rank = rank();
  told.sequence = header.sequence;
  told.operation = name_of(header.operation);
  if (header.operation == Operation::broadcast)
    told.detail = fmt::format("from rank {}", header.root);
  if (header.operation == Operation::all_reduce || header.operation == Operation::reduce_scatter) {
    told.detail = to_string(header.op);
  }
  told.peer = call.peer;
  told.num_elements = header.num_elements;
  told.dtype = header.dtype;
  told.memory = trace::host_values(call.input);
  if (header.operation == Operation::send) told.bytes_sent = call.input.num_bytes();
  told.is_async = launch == Launch::async;
  observer->call(told, moment);
}

void PlanCommunicator::run(const CollectiveCall& call) {
  const char* name = name_of(call.header.operation);
  trace::ScopedSpan span(trace::Lane::comm, trace::Category::communication, name,
                         call.header.num_elements * size_of(call.header.dtype));
  span.set_sequence(static_cast<std::int64_t>(call.header.sequence));
  if (is_point_to_point(call.header.operation)) {
    const bool is_send = call.header.operation == Operation::send;
    if (is_send) group_->send(call);
    if (!is_send) group_->receive(call);
    trace::count_collective(rank(), name, is_send ? call.input.num_bytes() : 0);
    return;
  }
  const DeviceSpans on_device(call);
  group_->announce(call);
  const NoticedCall noticed(*group_, call.header);
  try {
    compare_calls(call.header);
    trace::count_collective(rank(), name, group_->run(call, memory_));
    tell(call, Launch::blocking, trace::Moment::ends);
  } catch (const Error& error) {
    group_->abandon(error);
    drain(call);
    throw;
  } catch (const std::exception& error) {
    group_->abandon(Error(ErrorCode::State, name, error.what()));
    drain(call);
    throw;
  }
}

void PlanCommunicator::compare_calls(const CallHeader& mine) {
  const CallHeader first = rank() == 0 ? mine : group_->announced_by(0);
  for (int peer = 0; peer < world_size(); ++peer) {
    const CallHeader theirs = peer == rank() ? mine : group_->announced_by(peer);
    if (!same_call(first, theirs)) {
      group_->fail_and_throw(
          Error(ErrorCode::Comm, "collective", describe_difference(peer, theirs, 0, first)));
    }
    memory_[static_cast<std::size_t>(peer)] = theirs.memory;
  }
}

}  // namespace lockstep::comm
