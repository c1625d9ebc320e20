#include "engine/comm/plan_executor.h"

#include <algorithm>
#include <cstring>

#include "engine/comm/reduce.h"

namespace lockstep::comm {
void PlanExecutor::run(const RankProgram& program, TensorView buffer, const Reduction& reduction) {
  sent_.assign(program.num_sends, {});
  piece_elements_ = transport_.max_message_bytes() / size_of(buffer.dtype);
  const std::size_t num_staging_bytes = program.num_staging_elements * size_of(buffer.dtype);
  std::byte* staging = num_staging_bytes > 0 ? transport_.staging(num_staging_bytes) : nullptr;
  for (const ProgramStep& step : program.steps) {
    if (step.sends.empty() && step.writes.empty()) continue;
    stage(step, buffer, staging);
    transport_.begin_step();
    // Piece by piece, so that ranks that send to each other empty each other's slots on the way.
    const std::size_t num_pieces = pieces_of(step);
    for (std::size_t piece = 0; piece < num_pieces; ++piece) {
      for (const ProgramSend& send : step.sends) do_send(send, piece, buffer, staging);
      for (const ProgramWrite& write : step.writes) do_write(write, piece, buffer, reduction);
    }
  }
  for (const std::size_t send : program.sends_at_end) {
    if (sent_[send].from == ProgramSend::From::buffer) wait_sent(send);
  }
}

std::size_t PlanExecutor::pieces_of(const ProgramStep& step) const {
  std::size_t longest = 1;
  for (const ProgramSend& send : step.sends) longest = std::max(longest, send.chunk.count);
  for (const ProgramWrite& write : step.writes) {
    longest = std::max(longest, write.write.chunk.count);
  }
  return (longest - 1) / piece_elements_ + 1;
}

plan::Chunk PlanExecutor::piece_of(plan::Chunk chunk, std::size_t piece) const {
  // Not a product first: a piece may be as large as a number can be.
  if (piece > 0 && piece > (chunk.count - 1) / piece_elements_) return {chunk.end(), 0};
  const std::size_t begin = piece * piece_elements_;
  return {chunk.offset + begin, std::min(piece_elements_, chunk.count - begin)};
}

void PlanExecutor::stage(const ProgramStep& step, TensorView buffer, std::byte* staging) {
  const std::size_t element_size = size_of(buffer.dtype);
  for (const StagedChunk& staged : step.staged) {
    const TensorView from = buffer.part(staged.chunk.offset, staged.chunk.count);
    std::memcpy(staging + staged.staging_offset * element_size, from.data, from.num_bytes());
  }
}

void PlanExecutor::do_send(const ProgramSend& send, std::size_t number, TensorView buffer,
                           const std::byte* staging) {
  const plan::Chunk piece = piece_of(send.chunk, number);
  if (piece.count == 0) return;
  ConstTensorView data = buffer.part(piece.offset, piece.count);
  const bool is_staged = send.from == ProgramSend::From::staging;
  const std::size_t staged_at = send.staging_offset + (piece.offset - send.chunk.offset);
  if (is_staged) data.data = staging + staged_at * size_of(buffer.dtype);
  const Ticket ticket =
      transport_.post(send.to_rank, {static_cast<const std::byte*>(data.data), data.num_bytes()});
  if (is_staged) transport_.posted_from_staging(send.to_rank, ticket);
  sent_[send.number] = {send.to_rank, ticket, send.from};
}

void PlanExecutor::do_write(const ProgramWrite& write, std::size_t number, TensorView buffer,
                            const Reduction& reduction) {
  const plan::Chunk piece = piece_of(write.write.chunk, number);
  if (piece.count == 0) return;
  const TensorView mine = buffer.part(piece.offset, piece.count);
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
