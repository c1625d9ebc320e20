#include "engine/comm/transport.h"

#include <algorithm>
#include <cstring>

namespace lockstep::comm {
namespace {

// Number `index` of the pieces of a chunk; empty behind the last one.
plan::Chunk piece_of(plan::Chunk chunk, std::size_t index, std::size_t piece_elements) {
  const std::size_t begin = std::min(index * piece_elements, chunk.count);
  return {chunk.offset + begin, std::min(piece_elements, chunk.count - begin)};
}

std::size_t longest_chunk(const plan::RankSchedule::Step& step) {
  std::size_t longest = 1;
  for (const plan::RankSchedule::Send& send : step.sends)
    longest = std::max(longest, send.chunk.count);
  for (const plan::Receive& receive : step.receives)
    longest = std::max(longest, receive.chunk.count);
  return longest;
}

}  // namespace

void Transport::run_schedule(const plan::RankSchedule& schedule, TensorView buffer,
                             const Reduction& reduction) {
  for (const plan::RankSchedule::Step& step : schedule.steps) {
    begin_step(step);
    run_step(step, buffer, reduction);
  }
}

// Piece by piece, so that ranks that send to each other empty each other's memory on the way. A
// chunk that is sent and overwritten in one step is so in equal pieces, each sent first.
void Transport::run_step(const plan::RankSchedule::Step& step, TensorView buffer,
                         const Reduction& reduction) {
  const std::size_t element_size = size_of(buffer.dtype);
  const std::size_t piece_elements = shape().max_message_bytes / element_size;
  const std::size_t num_pieces = (longest_chunk(step) - 1) / piece_elements + 1;
  for (std::size_t index = 0; index < num_pieces; ++index) {
    for (const plan::RankSchedule::Send& send : step.sends) {
      const plan::Chunk piece = piece_of(send.chunk, index, piece_elements);
      if (piece.count == 0) continue;
      const TensorView sent = buffer.slice(piece.offset, piece.count);
      post(Use::plan, send.to_rank, call_,
           {static_cast<const std::byte*>(sent.data), sent.num_bytes()});
    }
    for (const plan::Receive& receive : step.receives) {
      const plan::Chunk piece = piece_of(receive.chunk, index, piece_elements);
      if (piece.count == 0) continue;
      const TensorView mine = buffer.slice(piece.offset, piece.count);
      const auto values_of = [&](int from) { return take(Use::plan, from).data.data(); };
      receive_chunk(receive, rank(), reduction, values_of, mine, mine);
      for (const int from : receive.from_ranks) release(Use::plan, from);
    }
  }
}

void Transport::send_message(int to, const CallHeader& call, Bytes data) {
  throw_if_failed();
  post(Use::send, to, call, data);
}

void Transport::receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                                double timeout_seconds) {
  enter(call, timeout_seconds);
  const Message message = take(Use::send, from);
  require_same_message(from, message.call, message.data.size(), data.size());
  std::ranges::copy(message.data, data.begin());
  release(Use::send, from);
}

void Transport::post_note(int to, std::int64_t note) {
  post(Use::plan, to, call_, std::as_bytes(std::span(&note, 1)));
}

std::int64_t Transport::take_note(int from) {
  std::int64_t note;
  std::memcpy(&note, take(Use::plan, from).data.data(), sizeof(note));
  release(Use::plan, from);
  return note;
}

}  // namespace lockstep::comm
