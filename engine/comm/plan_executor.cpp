#include "engine/comm/plan_executor.h"

#include <algorithm>
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
  piece_elements_ = transport_.max_message_bytes() / size_of(buffer.dtype);
  const std::size_t num_staging_bytes = program.num_staging_elements * size_of(buffer.dtype);
  std::byte* staging = num_staging_bytes > 0 ? transport_.staging(num_staging_bytes) : nullptr;
  for (const ProgramStep& step : program.steps) {
    stage(step, buffer, staging);
    transport_.begin_step();
    const std::size_t first_send = sent_.size();
    sent_.resize(first_send + step.sends.size());
    // Piece by piece, so that ranks that send to each other empty each other's slots on the way.
    const std::size_t num_pieces = pieces_of(step);
    for (std::size_t piece = 0; piece < num_pieces; ++piece) {
      for (std::size_t i = 0; i < step.sends.size(); ++i) {
        do_send(step.sends[i], piece, buffer, staging, sent_[first_send + i]);
      }
      for (const ProgramWrite& write : step.writes) do_write(write, piece, buffer, reduction);
    }
  }
  for (std::size_t send = 0; send < sent_.size(); ++send) {
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
    std::memcpy(staging + staged.staging_offset * element_size, at(buffer, staged.chunk.offset),
                staged.chunk.count * element_size);
  }
}

void PlanExecutor::do_send(const ProgramSend& send, std::size_t number, TensorView buffer,
                           const std::byte* staging, Sent& sent) {
  const plan::Chunk piece = piece_of(send.chunk, number);
  if (piece.count == 0) return;
  const std::size_t element_size = size_of(buffer.dtype);
  const bool is_staged = send.from == ProgramSend::From::staging;
  const std::size_t staged_at = send.staging_offset + (piece.offset - send.chunk.offset);
  const std::byte* data = is_staged ? staging + staged_at * element_size : at(buffer, piece.offset);
  const Ticket ticket = transport_.post(send.to_rank, {data, piece.count * element_size});
  if (is_staged) transport_.posted_from_staging(send.to_rank, ticket);
  sent = {send.to_rank, ticket, send.from};
}

void PlanExecutor::do_write(const ProgramWrite& write, std::size_t number, TensorView buffer,
                            const Reduction& reduction) {
  const plan::Chunk piece = piece_of(write.write.chunk, number);
  if (piece.count == 0) return;
  const TensorView mine{at(buffer, piece.offset), buffer.dtype, piece.count};
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
