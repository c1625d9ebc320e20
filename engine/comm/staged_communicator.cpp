#include <utility>

#include "engine/comm/collective_call.h"
#include "engine/core/error.h"

namespace lockstep::comm {
namespace {

CollectiveOptions options_of(const CollectiveCall& call, Launch launch) {
  CollectiveOptions options;
  options.op = call.header.op;
  options.launch = launch;
  options.plan = call.header.plan;
  return options;
}

class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(std::unique_ptr<Communicator> inner, Device reached)
      : inner_(std::move(inner)), reached_(reached) {
    set_timeout_seconds(inner_->timeout_seconds());
    set_default_plan(inner_->default_plan());
  }

  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }
  // "own: auto over shm, staged in host memory"; of NCCL, which moves what matters itself, its own.
  std::string description() const override {
    const bool is_on_host = reached_.type == DeviceType::cpu;
    return inner_->description() + (is_on_host ? ", staged in host memory" : "");
  }
  std::string_view transport() const override { return inner_->transport(); }
  void abort(const std::string& why) override { inner_->abort(why); }
  plan::AllReducePlan plan_for(std::size_t num_elements) const override {
    const bool is_named = default_plan() != plan::AllReducePlan::automatic;
    return is_named ? default_plan() : inner_->plan_for(num_elements);
  }

 private:
  Work submit(CollectiveCall call, Launch launch) override;
  Work submit_together(std::vector<CollectiveCall> calls, Launch launch) override;

  bool reaches(const CollectiveCall& call) const {
    return !call.input.defined() || call.input.device().type == reached_.type;
  }
  Work run(const CollectiveCall& call, const Tensor& input, const Tensor& output, Launch launch);
  Work run_together(const CollectiveCall& call, std::span<const Tensor> buffers, Launch launch);

  std::unique_ptr<Communicator> inner_;
  Device reached_;
};

Work StagedCommunicator::submit(CollectiveCall call, Launch launch) {
  inner_->set_timeout_seconds(call.timeout_seconds);
  if (reaches(call)) return run(call, call.input, call.output, launch);
  const Tensor input = call.input.to(reached_);
  const Tensor output = call.output.defined() ? call.output.to(reached_) : Tensor();
  run(call, input, output, Launch::blocking).wait();
  const Operation operation = call.header.operation;
  const bool changes_input = operation == Operation::all_reduce ||
                             operation == Operation::broadcast || operation == Operation::recv;
  if (changes_input) call.input.copy_from(input);
  if (call.output.defined()) call.output.copy_from(output);
  return Work();
}

Work StagedCommunicator::submit_together(std::vector<CollectiveCall> calls, Launch launch) {
  inner_->set_timeout_seconds(calls[0].timeout_seconds);
  std::vector<Tensor> buffers;
  bool reaches_all = true;
  for (const CollectiveCall& call : calls) {
    reaches_all = reaches_all && reaches(call);
    buffers.push_back(reaches(call) ? call.input : call.input.to(reached_));
  }
  if (reaches_all) return run_together(calls[0], buffers, launch);
  run_together(calls[0], buffers, Launch::blocking).wait();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (!reaches(calls[i])) calls[i].input.copy_from(buffers[i]);
  }
  return Work();
}

Work StagedCommunicator::run_together(const CollectiveCall& call, std::span<const Tensor> buffers,
                                      Launch launch) {
  if (call.header.operation == Operation::broadcast) {
    return inner_->broadcast(buffers, call.header.root, launch);
  }
  return inner_->all_reduce(buffers, options_of(call, launch));
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

}  // namespace

std::unique_ptr<Communicator> staged(std::unique_ptr<Communicator> inner, Device reached) {
  return std::make_unique<StagedCommunicator>(std::move(inner), reached);
}

}  // namespace lockstep::comm
