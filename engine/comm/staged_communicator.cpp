#include "engine/comm/staged_communicator.h"

#include <utility>

#include "engine/core/error.h"

namespace lockstep::comm {
namespace {

// Which of a call's tensors hold something new afterwards.
bool changes_input(Operation operation) {
  return operation == Operation::all_reduce || operation == Operation::broadcast ||
         operation == Operation::recv;
}

CollectiveOptions options_of(const CollectiveCall& call, Launch launch) {
  CollectiveOptions options;
  options.op = call.header.op;
  options.launch = launch;
  options.plan = call.header.plan;
  options.trace_flow = call.trace_flow;
  return options;
}

}  // namespace

StagedCommunicator::StagedCommunicator(std::unique_ptr<Communicator> inner, Device reached)
    : inner_(std::move(inner)), reached_(reached) {
  set_timeout_seconds(inner_->timeout_seconds());
  set_default_plan(inner_->default_plan());
}

Work StagedCommunicator::submit(CollectiveCall call, Launch launch) {
  inner_->set_timeout_seconds(call.timeout_seconds);
  const bool is_reached = !call.input.defined() || call.input.device().type == reached_.type;
  if (is_reached) return run(call, call.input, call.output, launch);
  const Tensor input = call.input.to(reached_);
  const Tensor output = call.output.defined() ? call.output.to(reached_) : Tensor();
  run(call, input, output, Launch::blocking).wait();
  if (changes_input(call.header.operation)) call.input.copy_from(input);
  if (call.output.defined()) call.output.copy_from(output);
  return Work();
}

Work StagedCommunicator::run(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                             Launch launch) {
  switch (call.header.operation) {
    case Operation::none:
      break;
    case Operation::all_reduce:
      return inner_->all_reduce(input, options_of(call, launch));
    case Operation::broadcast:
      return inner_->broadcast(input, call.header.root, launch);
    case Operation::all_gather:
      return inner_->all_gather(input, output, launch);
    case Operation::reduce_scatter:
      return inner_->reduce_scatter(input, output, options_of(call, launch));
    case Operation::barrier:
      return inner_->barrier(launch);
    case Operation::send:
      return inner_->send(input, call.peer, launch);
    case Operation::recv:
      return inner_->recv(input, call.peer, launch);
  }
  fail(ErrorCode::State, "staged", "a call without an operation cannot be run");
}

}  // namespace lockstep::comm
