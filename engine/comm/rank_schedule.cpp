#include "engine/comm/rank_schedule.h"

#include <algorithm>

namespace lockstep::comm {
namespace {

// Schedules of more sizes than this are worked out again.
constexpr std::size_t kMaxSchedules = 1024;

std::vector<RankSchedule::Send> sends_of(const plan::Step& step, int rank) {
  std::vector<RankSchedule::Send> sends;
  for (const plan::Transfer& transfer : step.transfers) {
    if (transfer.from_rank == rank) sends.push_back({transfer.to_rank, transfer.chunk});
  }
  std::ranges::stable_sort(sends, {}, [](const auto& send) { return send.chunk.offset; });
  return sends;
}

RankSchedule::Overwrites overwrites_of(const RankSchedule::Step& step) {
  auto overwrites = RankSchedule::Overwrites::nothing;
  for (const RankSchedule::Send& send : step.sends) {
    for (const plan::Write& write : step.receives) {
      if (!plan::overlaps(send.chunk, write.chunk)) continue;
      if (send.chunk != write.chunk) return RankSchedule::Overwrites::parts_of_chunks;
      overwrites = RankSchedule::Overwrites::whole_chunks;
    }
  }
  return overwrites;
}

// In a group of one, a collective is at most a copy.
std::size_t copy_alone(const CollectiveCall& call) {
  const bool has_output = call.output.defined() && !call.output.shares_memory_with(call.input);
  if (has_output) call.output.copy_from(call.input.reshape(call.output.shape()));
  return 0;
}

}  // namespace

RankSchedule rank_schedule(const plan::CollectivePlan& plan, int rank) {
  plan::require_valid(plan);
  struct Open {
    plan::Chunk chunk;
    RankSchedule::Reader reader;
  };
  std::vector<Open> open;  // chunks that peers may still read
  RankSchedule schedule;
  schedule.num_elements_sent = plan::elements_sent(plan, rank);
  for (std::size_t s = 0; s < plan.steps.size(); ++s) {
    RankSchedule::Step& step = schedule.steps.emplace_back();
    step.sends = sends_of(plan.steps[s], rank);
    step.receives = plan::writes_of_rank(plan.steps[s], rank);
    step.overwrites = overwrites_of(step);
    for (const auto& send : step.sends) open.push_back({send.chunk, {send.to_rank, s}});
    std::erase_if(open, [&](const Open& sent) {
      const bool is_overwritten = std::ranges::any_of(step.receives, [&](const plan::Write& write) {
        return plan::overlaps(sent.chunk, write.chunk);
      });
      if (is_overwritten) step.wait_for.push_back(sent.reader);
      return is_overwritten;
    });
  }
  for (const Open& sent : open) schedule.wait_for.push_back(sent.reader);
  return schedule;
}

void receive_chunk(const plan::Write& write, int rank, const Reduction& reduction,
                   const std::function<const void*(int peer)>& source_of, TensorView mine,
                   TensorView out) {
  const auto values_of = [&](int peer) {
    return ConstTensorView{source_of(peer), mine.dtype, mine.num_elements};
  };
  if (write.combine == plan::Combine::copy) {
    kernels::backend(DeviceType::cpu).copy(reduction.stream, values_of(write.from_ranks[0]), out);
    return;
  }
  thread_local std::vector<ConstTensorView> sources;
  sources.clear();
  bool has_mine = false;
  for (const int from : write.from_ranks) {
    if (!has_mine && from > rank) {
      sources.push_back(mine);
      has_mine = true;
    }
    sources.push_back(values_of(from));
  }
  if (!has_mine) sources.push_back(mine);
  reduce_in_order(reduction.stream, reduction.op, 1.0, sources, out);
}

std::size_t PlanRunner::run(const CollectiveCall& call, std::size_t pass_bytes,
                            const RunSchedule& run) {
  if (world_size_ == 1) return copy_alone(call);
  switch (call.header.operation) {
    case Operation::all_reduce:
      return all_reduce(call, pass_bytes, run);
    case Operation::all_gather:
      return all_gather(call, run);
    case Operation::reduce_scatter:
      return reduce_scatter(call, run);
    case Operation::barrier:
      return 0;  // comparing the calls was one
    default:
      return run_plan(call.header, call.input.view(), {call.input.stream()}, run);
  }
}

std::size_t PlanRunner::all_reduce(const CollectiveCall& call, std::size_t pass_bytes,
                                   const RunSchedule& run) {
  const TensorView buffer = call.input.view();
  const Reduction reduction{call.input.stream(), call.header.op};
  const double factor = factor_of(reduction.op, world_size_);
  const bool is_cut = plan::sums_in_rank_order(call.header.plan);
  const std::size_t pass_elements =
      is_cut ? pass_bytes / size_of(buffer.dtype) : buffer.num_elements;
  std::size_t num_bytes_sent = 0;
  for (std::size_t begin = 0; begin < buffer.num_elements; begin += pass_elements) {
    const std::size_t count = std::min(pass_elements, buffer.num_elements - begin);
    const TensorView pass = buffer.part(begin, count);
    multiply(reduction.stream, factor, pass);
    num_bytes_sent += run_plan(call.header, pass, reduction, run);
  }
  return num_bytes_sent;
}

std::size_t PlanRunner::all_gather(const CollectiveCall& call, const RunSchedule& run) {
  const std::size_t num_elements = call.input.num_elements();
  const Tensor mine =
      call.output.slice(static_cast<std::size_t>(rank_) * num_elements, call.input.shape());
  if (!mine.shares_memory_with(call.input)) mine.copy_from(call.input);
  return run_plan(call.header, call.output.view(), {call.output.stream()}, run);
}

std::size_t PlanRunner::reduce_scatter(const CollectiveCall& call, const RunSchedule& run) {
  const Reduction reduction{call.input.stream(), call.header.op};
  const Tensor whole = call.input.clone();
  multiply(reduction.stream, factor_of(reduction.op, world_size_), whole.view());
  const std::size_t num_bytes_sent = run_plan(call.header, whole.view(), reduction, run);
  const std::size_t num_elements = call.output.num_elements();
  call.output.copy_from(
      whole.slice(static_cast<std::size_t>(rank_) * num_elements, call.output.shape()));
  return num_bytes_sent;
}

std::size_t PlanRunner::run_plan(const CallHeader& header, TensorView buffer,
                                 const Reduction& reduction, const RunSchedule& run) {
  const RankSchedule& schedule = schedule_of(header, buffer.num_elements);
  run(schedule, buffer, reduction);
  return schedule.num_elements_sent * size_of(buffer.dtype);
}

const RankSchedule& PlanRunner::schedule_of(const CallHeader& header, std::size_t num_elements) {
  const Key key{header.operation, header.plan, header.root, num_elements};
  const auto found = schedules_.find(key);
  if (found != schedules_.end()) return found->second;
  if (schedules_.size() >= kMaxSchedules) schedules_.clear();
  const plan::CollectivePlan plan = plan_of(header, world_size_, hosts_, num_elements);
  return schedules_.emplace(key, rank_schedule(plan, rank_)).first->second;
}

}  // namespace lockstep::comm
