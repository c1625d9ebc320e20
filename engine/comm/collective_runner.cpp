#include "engine/comm/collective_runner.h"

#include <algorithm>

#include "engine/comm/device_calls.h"
#include "engine/comm/direct_all_reduce.h"
#include "engine/comm/reduce.h"

namespace lockstep::comm {
namespace {

// In a group of one, every reduction and every gathering is a copy at most.
std::size_t copy_alone(const CollectiveCall& call) {
  const bool has_output = call.output.defined() && !call.output.shares_memory_with(call.input);
  if (has_output) call.output.copy_from(call.input.reshape(call.output.shape()));
  return 0;
}

}  // namespace

std::size_t CollectiveRunner::run(const CollectiveCall& call, std::span<void* const> memory) {
  if (is_on_cuda(call)) return move_on_devices(call);
  if (transport_.world_size() == 1) return copy_alone(call);
  switch (call.header.operation) {
    case Operation::all_reduce:
      return all_reduce(call, memory);
    case Operation::all_gather:
      return all_gather(call);
    case Operation::reduce_scatter:
      return reduce_scatter(call);
    case Operation::barrier:
      return 0;  // comparing the calls was one
    default:
      return run_plan(call.header, call.input.view(), {call.input.stream()});
  }
}

std::size_t CollectiveRunner::move_on_devices(const CollectiveCall& call) {
  enqueue_collective(transport_, call.header);
  const CallHeader& header = call.header;
  const bool is_gather = header.operation == Operation::all_gather;
  const std::size_t num_elements = is_gather ? call.output.num_elements() : header.num_elements;
  const bool is_direct =
      header.operation == Operation::all_reduce && header.plan == plan::AllReducePlan::two_shot;
  return size_of(header.dtype) *
         (is_direct ? direct_all_reduce_elements_sent(transport_.rank(), transport_.world_size(),
                                                      num_elements)
                    : program_of(header, num_elements).num_elements_sent);
}

std::size_t CollectiveRunner::all_reduce(const CollectiveCall& call,
                                         std::span<void* const> memory) {
  const TensorView buffer = call.input.view();
  const Reduction reduction{call.input.stream(), call.header.op};
  const double factor = factor_of(reduction.op, transport_.world_size());
  if (call.header.plan == plan::AllReducePlan::two_shot && transport_.address_space() != nullptr) {
    direct_all_reduce(reduction, factor, transport_.rank(), memory, buffer.dtype,
                      buffer.num_elements);
    transport_.address_space()->finish_shared();
    return direct_all_reduce_elements_sent(transport_.rank(), transport_.world_size(),
                                           buffer.num_elements) *
           size_of(buffer.dtype);
  }
  const bool is_cut = plan::sums_in_rank_order(call.header.plan);
  const std::size_t pass_elements =
      is_cut ? transport_.pass_bytes() / size_of(buffer.dtype) : buffer.num_elements;
  std::size_t num_bytes_sent = 0;
  for (std::size_t begin = 0; begin < buffer.num_elements; begin += pass_elements) {
    const std::size_t count = std::min(pass_elements, buffer.num_elements - begin);
    const TensorView pass = buffer.part(begin, count);
    multiply(reduction.stream, factor, pass);
    num_bytes_sent += run_plan(call.header, pass, reduction);
  }
  return num_bytes_sent;
}

std::size_t CollectiveRunner::all_gather(const CollectiveCall& call) {
  const std::size_t num_elements = call.input.num_elements();
  const Tensor mine = call.output.slice(static_cast<std::size_t>(transport_.rank()) * num_elements,
                                        call.input.shape());
  if (!mine.shares_memory_with(call.input)) mine.copy_from(call.input);
  return run_plan(call.header, call.output.view(), {call.output.stream()});
}

std::size_t CollectiveRunner::reduce_scatter(const CollectiveCall& call) {
  const Reduction reduction{call.input.stream(), call.header.op};
  const double factor = factor_of(reduction.op, transport_.world_size());
  const Tensor whole = call.input.clone();
  const TensorView view = whole.view();
  multiply(reduction.stream, factor, view);
  const std::size_t num_bytes_sent = run_plan(call.header, view, reduction);
  const std::size_t num_elements = call.output.num_elements();
  call.output.copy_from(
      whole.slice(static_cast<std::size_t>(transport_.rank()) * num_elements, call.output.shape()));
  return num_bytes_sent;
}

std::size_t CollectiveRunner::run_plan(const CallHeader& header, TensorView buffer,
                                       const Reduction& reduction) {
  const RankProgram& program = program_of(header, buffer.num_elements);
  executor_.run(program, buffer, reduction);
  return program.num_elements_sent * size_of(buffer.dtype);
}

const RankProgram& CollectiveRunner::program_of(const CallHeader& header,
                                                std::size_t num_elements) {
  return programs_.find_or_make(header, num_elements, [&] {
    return rank_program(plan_of(header, transport_.world_size(), transport_.hosts(), num_elements),
                        transport_.rank());
  });
}

}  // namespace lockstep::comm
