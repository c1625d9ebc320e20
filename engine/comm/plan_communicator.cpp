// The project's own communicator: runs collectives by their plans, among the ranks of a Group.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "engine/comm/comm_errors.h"
#include "engine/comm/group.h"
#include "engine/trace/observer.h"
#include "engine/trace/span.h"

namespace lockstep::comm {
namespace {

// At most so many kinds of calls keep their schedules; others' are computed again each time.
constexpr std::size_t kMaxSchedules = 1024;

std::size_t index_of(int rank) {
  return static_cast<std::size_t>(rank);
}

class PlanCommunicator final : public Communicator {
 public:
  explicit PlanCommunicator(std::unique_ptr<Group> group)
      : group_(std::move(group)),
        shape_(group_->shape()),
        numbers_(group_->world_size()),
        memory_(index_of(group_->world_size())),
        async_(fmt::format("comm {}", group_->rank()), shape_.slices) {}

  // Finishes asynchronous calls, then leaves the group.
  ~PlanCommunicator() override {
    async_.finish();
    trace::Observer* const observer = trace::observer();
    if (observer != nullptr && observed_group() != 0) {
      observer->group_left(observed_group(), rank());
    }
  }

  int rank() const override { return group_->rank(); }
  int world_size() const override { return group_->world_size(); }
  std::string description() const override {
    return fmt::format("own: {} over {}", plan::to_string(default_plan()), transport());
  }
  std::string_view transport() const override { return shape_.name; }
  void abort(const std::string& why) override { group_->fail(aborted_by(rank(), why)); }

  plan::AllReducePlan plan_for(std::size_t num_elements) const override {
    return default_plan() == plan::AllReducePlan::automatic ? automatic_plan(num_elements)
                                                            : default_plan();
  }

 private:
  // For ranks that share memory, two-shot is one pass over it at every size (memory_group.cpp).
  plan::AllReducePlan automatic_plan(std::size_t num_elements) const {
    if (shape_.shares_memory) return plan::AllReducePlan::two_shot;
    if (!shape_.hosts.empty()) return plan::AllReducePlan::hierarchical;
    return plan::choose_all_reduce_plan(world_size(), num_elements);
  }

  // --- a call ---

  Work submit(CollectiveCall call, Launch launch) override {
    CallHeader& header = call.header;
    if (is_on_cuda(call) && !shape_.takes_cuda) {
      fail(ErrorCode::Device, name_of(header.operation),
           "the {} transport moves CPU tensors, found {}", shape_.name,
           lockstep::describe(call.input));
    }
    header.sequence = numbers_.next(header.operation, call.peer);
    header.memory = call.input.defined() ? call.input.raw() : nullptr;
    if (header.operation == Operation::all_reduce &&
        header.plan == plan::AllReducePlan::automatic) {
      header.plan = automatic_plan(header.num_elements);
    }
    group_->note_call(header);
    tell(call, launch, trace::Moment::begins);
    if (launch == Launch::blocking) async_.finish();
    group_->put_on_stream(call, launch);
    if (launch == Launch::async) {
      return async_.start(std::move(call), [this](const CollectiveCall& c) { run(c); });
    }
    run(call);
    return {};
  }

  void tell(const CollectiveCall& call, Launch launch, trace::Moment moment) const {
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
    if (is_reduction(header.operation)) told.detail = to_string(header.op);
    told.peer = call.peer;
    told.num_elements = header.num_elements;
    told.dtype = header.dtype;
    told.memory = trace::host_values(call.input);
    if (header.operation == Operation::send) told.bytes_sent = call.input.num_bytes();
    told.is_async = launch == Launch::async;
    observer->call(told, moment);
  }

  void run(const CollectiveCall& call) {
    const CallHeader& header = call.header;
    const char* name = name_of(header.operation);
    trace::ScopedSpan span(trace::Lane::comm, trace::Category::communication, name,
                           header.num_elements * size_of(header.dtype));
    span.set_sequence(static_cast<std::int64_t>(header.sequence));
    const auto abandon = [&](const Error& error) {
      group_->abandon(failed_in(header, rank(), error));  // unless the group has failed before
    };
    try {
      if (header.operation == Operation::send) return send(call);
      if (header.operation == Operation::recv) return receive(call);
      run_collective(call);
    } catch (const Error& error) {
      abandon(error);
      throw;
    } catch (const std::exception& error) {
      abandon(Error(ErrorCode::State, name, error.what()));
      throw;
    }
  }

  void run_collective(const CollectiveCall& call) {
    const CallHeader& header = call.header;
    group_->announce(call);
    compare_calls(header);
    trace::count_collective(rank(), name_of(header.operation), move_data(call));
    tell(call, Launch::blocking, trace::Moment::ends);
  }

  void compare_calls(const CallHeader& mine) {
    const CallHeader first = rank() == 0 ? mine : group_->announced_by(0);
    for (int peer = 0; peer < world_size(); ++peer) {
      const CallHeader theirs = peer == rank() ? mine : group_->announced_by(peer);
      if (!same_call(first, theirs)) {
        group_->fail_and_throw(
            Error(ErrorCode::Comm, "collective", describe_difference(peer, theirs, 0, first)));
      }
      memory_[index_of(peer)] = theirs.memory;
    }
  }

  void send(const CollectiveCall& call) {
    if (is_on_cuda(call)) {
      group_->run_directly(call, {});
    } else {
      group_->send_message(call.peer, call.header, bytes_of(call.input));
    }
    trace::count_collective(rank(), name_of(Operation::send), call.input.num_bytes());
  }

  void receive(const CollectiveCall& call) {
    if (is_on_cuda(call)) {
      group_->run_directly(call, {});
    } else {
      group_->receive_message(call.peer, call.header,
                              {static_cast<std::byte*>(call.input.raw()), call.input.num_bytes()},
                              call.timeout_seconds);
    }
    trace::count_collective(rank(), name_of(Operation::recv), 0);
  }

  // --- the data of a collective, which all ranks called alike; each returns the bytes sent ---

  std::size_t move_data(const CollectiveCall& call) {
    const bool takes_short_cut = is_on_cuda(call) || takes_one_pass(shape_, call.header);
    group_->begin_data();
    const std::size_t num_bytes_sent = takes_short_cut ? move_directly(call) : move_by_plan(call);
    group_->end_data();
    return num_bytes_sent;
  }

  // Counts the bytes that the plan would send, so that counters agree with predictions; a small
  // call moves others.
  std::size_t move_directly(const CollectiveCall& call) {
    const CallHeader& header = call.header;
    group_->run_directly(call, memory_);
    const bool is_gather = header.operation == Operation::all_gather;
    const std::size_t num_elements = is_gather ? call.output.num_elements() : header.num_elements;
    return schedule_of(header, num_elements).num_elements_sent * size_of(header.dtype);
  }

  std::size_t move_by_plan(const CollectiveCall& call) {
    const CallHeader& header = call.header;
    if (header.operation == Operation::barrier) return 0;  // comparing the calls was the barrier
    if (header.operation == Operation::broadcast) return run_plan(call, call.input.view());
    if (header.operation == Operation::all_reduce) {
      multiply(call.input.stream(), factor_of(header.op, world_size()), call.input.view());
      return run_plan(call, call.input.view());
    }
    if (header.operation == Operation::all_gather) {
      const std::size_t offset = index_of(rank()) * call.input.num_elements();
      const Tensor mine = call.output.slice(offset, call.input.shape());
      if (!mine.shares_memory_with(call.input)) mine.copy_from(call.input);
      return run_plan(call, call.output.view());
    }
    whole_ = call.input.clone();  // reduce_scatter keeps its input
    multiply(call.input.stream(), factor_of(header.op, world_size()), whole_.view());
    const std::size_t num_bytes_sent = run_plan(call, whole_.view());
    const std::size_t offset = index_of(rank()) * call.output.num_elements();
    call.output.copy_from(whole_.slice(offset, call.output.shape()));
    whole_ = {};
    return num_bytes_sent;
  }

  std::size_t run_plan(const CollectiveCall& call, TensorView buffer) {
    const plan::RankSchedule& schedule = schedule_of(call.header, buffer.num_elements);
    group_->run_schedule(schedule, buffer, {call.input.stream(), call.header.op});
    return schedule.num_elements_sent * size_of(buffer.dtype);
  }

  // Each kind of call is worked out once. num_elements: of the whole buffer.
  const plan::RankSchedule& schedule_of(const CallHeader& header, std::size_t num_elements) {
    const ScheduleKey key{header.operation, header.plan, header.root, num_elements};
    const auto found = schedules_.find(key);
    if (found != schedules_.end()) return found->second;
    if (schedules_.size() >= kMaxSchedules) schedules_.clear();
    const plan::CollectivePlan plan = plan_of(header, world_size(), shape_.hosts, num_elements);
    return schedules_.emplace(key, plan::rank_schedule(plan, rank())).first->second;
  }

  using ScheduleKey = std::tuple<Operation, plan::AllReducePlan, int, std::size_t>;

  std::unique_ptr<Group> group_;
  GroupShape shape_;
  CallNumbers numbers_;
  std::vector<void*> memory_;  // each rank's, in the current collective
  Tensor whole_;               // reduce_scatter's copy, which outlives an error
  std::map<ScheduleKey, plan::RankSchedule> schedules_;
  AsyncCalls async_;  // the last member, so that its thread ends first
};

}  // namespace

std::unique_ptr<Communicator> make_plan_communicator(std::unique_ptr<Group> group) {
  return std::make_unique<PlanCommunicator>(std::move(group));
}

}  // namespace lockstep::comm
