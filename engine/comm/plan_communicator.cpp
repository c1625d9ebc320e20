#include "engine/comm/plan_communicator.h"

#include <fmt/format.h>

#include "engine/audit/calls.h"
#include "engine/audit/switch.h"
#include "engine/audit/values.h"
#include "engine/comm/absent_rank.h"
#include "engine/comm/device_calls.h"
#include "engine/comm/long_wait.h"
#include "engine/comm/transport/link/link_transport.h"
#include "engine/trace/counters.h"
#include "engine/trace/span.h"

namespace lockstep::comm {
namespace {

void require_reachable(const CollectiveCall& call, Transport& transport) {
  if (!is_on_cuda(call) || transport.address_space() != nullptr) return;
  fail(ErrorCode::Device, name_of(call.header.operation),
       "the {} transport moves CPU tensors, found {}", transport.name(),
       lockstep::describe(call.input));
}

Bytes bytes_of(const Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.raw()), tensor.num_bytes()};
}

}  // namespace

PlanCommunicator::PlanCommunicator(std::unique_ptr<Transport> transport,
                                   runtime::Worker::Slices slices)
    : transport_(std::move(transport)),
      runner_(*transport_),
      numbers_(transport_->world_size()),
      memory_(static_cast<std::size_t>(transport_->world_size())),
      async_(fmt::format("comm {}", transport_->rank()), slices) {}

PlanCommunicator::~PlanCommunicator() {
  if (audit::is_on() && audit_group() != 0) audit::note_left(audit_group(), rank());
}

std::string PlanCommunicator::description() const {
  return fmt::format("own: {} over {}", plan::to_string(default_plan()), transport_->name());
}

void PlanCommunicator::abort(const std::string& why) {
  transport_->fail(aborted_by(rank(), why));
}

plan::AllReducePlan PlanCommunicator::plan_for(std::size_t num_elements) const {
  return default_plan() == plan::AllReducePlan::automatic ? automatic_plan(num_elements)
                                                          : default_plan();
}

// Where ranks share memory, two-shot is one pass over it (direct_all_reduce.h) at every size.
plan::AllReducePlan PlanCommunicator::automatic_plan(std::size_t num_elements) const {
  if (transport_->address_space() != nullptr) return plan::AllReducePlan::two_shot;
  if (!transport_->hosts().empty()) return plan::AllReducePlan::hierarchical;
  return plan::choose_all_reduce_plan(world_size(), num_elements);
}

Work PlanCommunicator::submit(CollectiveCall call, Launch launch) {
  require_reachable(call, *transport_);
  CallHeader& header = call.header;
  header.sequence = numbers_.next(header.operation, call.peer);
  header.memory = call.input.defined() ? call.input.raw() : nullptr;
  if (header.operation == Operation::all_reduce && header.plan == plan::AllReducePlan::automatic) {
    header.plan = automatic_plan(header.num_elements);
  }
  transport_->note_call(header);
  if (audit::is_on() && audit_group() != 0) note(call, launch);
  if (launch == Launch::blocking) {
    put_on_stream(call, launch, async_.finish() ? FollowsAsync::yes : FollowsAsync::no);
    run(call);
    return {};
  }
  put_on_stream(call, launch, FollowsAsync::yes);
  return async_.start(std::move(call), transport_, [this](const CollectiveCall& c) { run(c); });
}

void PlanCommunicator::note(const CollectiveCall& call, Launch launch) const {
  const CallHeader& header = call.header;
  audit::Call noted;
  noted.group = audit_group();
  noted.rank = rank();
  noted.sequence = header.sequence;
  noted.operation = name_of(header.operation);
  std::string detail;
  if (header.operation == Operation::broadcast) detail = fmt::format("from rank {}", header.root);
  if (header.operation == Operation::all_reduce || header.operation == Operation::reduce_scatter) {
    detail = to_string(header.op);
  }
  noted.detail = detail;
  noted.peer = call.peer;
  noted.num_elements = header.num_elements;
  noted.dtype = header.dtype;
  noted.memory = audit::values_of(call.input);
  if (header.operation == Operation::send) noted.bytes_sent = call.input.num_bytes();
  noted.waited = launch == Launch::blocking ? audit::Waited::yes : audit::Waited::no;
  audit::note_call(noted);
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
  const DevicePartScope part(*transport_, call);
  transport_->announce(call.header, call.timeout_seconds);
  const WatchedCall watched(*transport_, call.header);
  try {
    compare_calls(call.header);
    transport_->begin_data();
    const std::size_t num_bytes_sent = runner_.run(call, memory_);
    transport_->end_data();
    trace::count_collective(rank(), name, num_bytes_sent);
    if (audit::is_on() && audit_group() != 0) {
      audit::note_done(audit_group(), rank(), name, call.header.sequence);
    }
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
      transport_->fail_and_throw(
          Error(ErrorCode::Comm, "collective", describe_difference(peer, theirs, 0, first)));
    }
    memory_[static_cast<std::size_t>(peer)] = theirs.memory;
  }
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
                                                         std::unique_ptr<LinkModel> links) {
  if (!links) return std::make_unique<PlanCommunicator>(std::move(transport));
  return std::make_unique<PlanCommunicator>(
      std::make_unique<LinkTransport>(std::move(transport), std::move(links)),
      runtime::Worker::Slices::prompt);
}

}  // namespace lockstep::comm
