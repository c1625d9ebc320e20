#include <utility>

#include "engine/comm/collective_call.h"

namespace lockstep::comm {

class ThroughHost final : public Communicator {
 public:
  ThroughHost(std::unique_ptr<Communicator> inner, Device reached)
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
  Work submit(CollectiveCall call, Launch launch) override {
    if (reaches(call)) return inner_->submit(std::move(call), launch);
    const CollectiveCall moved = to_reached(call);
    inner_->submit(moved, Launch::blocking).wait();
    copy_back(moved, call);
    return {};
  }

  bool reaches(const CollectiveCall& call) const {
    return !call.input.defined() || call.input.device().type == reached_.type;
  }

  CollectiveCall to_reached(CollectiveCall call) const {
    call.header.device = reached_.type;
    call.input = call.input.to(reached_);
    if (call.output.defined()) call.output = call.output.to(reached_);
    return call;
  }

  static void copy_back(const CollectiveCall& moved, const CollectiveCall& call) {
    const Operation operation = call.header.operation;
    const bool changes_input = operation == Operation::all_reduce ||
                               operation == Operation::broadcast || operation == Operation::recv;
    if (changes_input) call.input.copy_from(moved.input);
    if (call.output.defined()) call.output.copy_from(moved.output);
  }

  std::unique_ptr<Communicator> inner_;
  Device reached_;
};

std::unique_ptr<Communicator> through_host(std::unique_ptr<Communicator> inner, Device reached) {
  return std::make_unique<ThroughHost>(std::move(inner), reached);
}

}  // namespace lockstep::comm
