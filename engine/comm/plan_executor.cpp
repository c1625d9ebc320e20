#include "engine/comm/plan_executor.h"

#include <cstring>

#include "engine/comm/reduce.h"

namespace lockstep::comm {
namespace {

std::byte* at(TensorView buffer, std::size_t element) {
  return static_cast<std::byte*>(buffer.data) + element * size_of(buffer.dtype);
}

}  // namespace

void PlanExecutor::run(const RankProgram& program, TensorView buffer, const Reduction& reduction) {
  sent_.clear();
  const std::size_t num_staging_bytes = program.num_staging_elements * size_of(buffer.dtype);
  std::byte* staging = num_staging_bytes > 0 ? transport_.staging(num_staging_bytes) : nullptr;
  for (const ProgramStep& step : program.steps) {
    do_sends(step, buffer, staging);
    for (const ProgramWrite& write : step.writes) do_write(write, buffer, reduction);
  }
  for (std::size_t send = 0; send < sent_.size(); ++send) {
    if (sent_[send].from == ProgramSend::From::buffer) wait_sent(send);
  }
}

void PlanExecutor::do_sends(const ProgramStep& step, TensorView buffer, std::byte* staging) {
  const std::size_t element_size = size_of(buffer.dtype);
  for (const StagedChunk& staged : step.staged) {
    std::memcpy(staging + staged.staging_offset * element_size, at(buffer, staged.chunk.offset),
                staged.chunk.count * element_size);
  }
  for (const ProgramSend& send : step.sends) {
    const bool is_staged = send.from == ProgramSend::From::staging;
    const std::byte* data =
        is_staged ? staging + send.staging_offset * element_size : at(buffer, send.chunk.offset);
    const Ticket ticket = transport_.post(send.to_rank, {data, send.chunk.count * element_size});
    if (is_staged) transport_.posted_from_staging(send.to_rank, ticket);
    sent_.push_back({send.to_rank, ticket, send.from});
  }
}

void PlanExecutor::do_write(const ProgramWrite& write, TensorView buffer,
                            const Reduction& reduction) {
  const plan::Chunk chunk = write.write.chunk;
  const TensorView mine{at(buffer, chunk.offset), buffer.dtype, chunk.count};
  sources_.clear();
  bool has_mine = write.write.combine == plan::Combine::copy;  // then it is overwritten
  for (const int from : write.write.from_ranks) {
    if (!has_mine && from > transport_.rank()) {
      sources_.push_back(mine);
      has_mine = true;
    }
    sources_.push_back({transport_.take(from, mine.num_bytes()), mine.dtype, mine.num_elements});
  }
  if (!has_mine) sources_.push_back(mine);
  for (const std::size_t send : write.sends_before) wait_sent(send);
  if (write.write.combine == plan::Combine::copy) {
    kernels::backend(DeviceType::cpu).copy(reduction.stream, sources_[0], mine);
  } else {
    reduce_in_order(reduction.stream, reduction.op, 1.0, sources_, mine);
  }
  for (const int from : write.write.from_ranks) transport_.release(from);
}

void PlanExecutor::wait_sent(std::size_t send) {
  transport_.wait_sent(sent_[send].to_rank, sent_[send].ticket);
}

}  // namespace lockstep::comm
