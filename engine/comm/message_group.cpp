#include "engine/comm/message_group.h"

#include <algorithm>
#include <cstring>

namespace lockstep::comm {
namespace {

GroupShape shape_of(const Transport& transport, const LinkModel* links) {
  const TransportShape& inner = transport.shape();
  GroupShape shape{inner.rank, inner.world_size, inner.name, inner.hosts};
  return links == nullptr ? shape : behind(*links, std::move(shape));
}

// Number `index` of the pieces of a chunk; empty behind the last one.
plan::Chunk piece_of(plan::Chunk chunk, std::size_t index, std::size_t piece_elements) {
  // Not a product first: a piece may be as large as a number can be.
  if (index > 0 && index > (chunk.count - 1) / piece_elements) return {chunk.end(), 0};
  const std::size_t begin = index * piece_elements;
  return {chunk.offset + begin, std::min(piece_elements, chunk.count - begin)};
}

std::size_t longest_chunk(const RankSchedule::Step& step) {
  std::size_t longest = 1;
  for (const RankSchedule::Send& send : step.sends) longest = std::max(longest, send.chunk.count);
  for (const plan::Write& write : step.receives) longest = std::max(longest, write.chunk.count);
  return longest;
}

}  // namespace

MessageGroup::MessageGroup(std::unique_ptr<Transport> transport, std::unique_ptr<LinkModel> links)
    : Group(shape_of(*transport, links.get())),
      transport_(std::move(transport)),
      runner_(rank(), world_size(), shape().hosts) {
  if (links == nullptr) return;
  const auto post = [this](int to, Time time) {
    transport_->post(to, std::as_bytes(std::span(&time, 1)));
  };
  const auto take = [this](int from) {
    Time time;
    std::memcpy(&time, transport_->take(from, sizeof(time)), sizeof(time));
    transport_->release(from);
    return time;
  };
  clock_.emplace(std::move(links), rank(), world_size(), transport_->shape().hosts,
                 LinkClock::Means{post, take, [this] { throw_if_failed(); },
                                  [this](const Error& error) { fail_and_throw(error); }});
}

void MessageGroup::note_call(const CallHeader& call) {
  if (clock_) clock_->note_call(call);
}

void MessageGroup::announce(const CollectiveCall& call) {
  if (clock_) clock_->begin_call(call.header, call.timeout_seconds);
  transport_->announce(call.header, call.timeout_seconds);
}

std::size_t MessageGroup::run(const CollectiveCall& call, std::span<void* const>) {
  if (clock_) clock_->begin_data();
  const std::size_t pass_bytes =
      clock_ ? std::numeric_limits<std::size_t>::max() : transport_->shape().pass_bytes;
  const std::size_t num_bytes_sent = runner_.run(
      call, pass_bytes,
      [this](const RankSchedule& schedule, TensorView buffer, const Reduction& reduction) {
        run_schedule(schedule, buffer, reduction);
      });
  if (clock_) clock_->end_data();
  return num_bytes_sent;
}

void MessageGroup::abandon(const Error& error) noexcept {
  if (clock_) clock_->abandon_call();
  fail(error);
}

void MessageGroup::run_schedule(const RankSchedule& schedule, TensorView buffer,
                                const Reduction& reduction) {
  for (const RankSchedule::Step& step : schedule.steps) {
    if (step.sends.empty() && step.receives.empty()) continue;
    if (clock_) clock_->begin_step(step, size_of(buffer.dtype));
    run_step(step, buffer, reduction);
  }
}

// Piece by piece, so that ranks that send to each other empty each other's memory on the way.
void MessageGroup::run_step(const RankSchedule::Step& step, TensorView buffer,
                            const Reduction& reduction) {
  const std::size_t element_size = size_of(buffer.dtype);
  const std::size_t piece_elements = transport_->shape().max_message_bytes / element_size;
  const std::size_t num_pieces = (longest_chunk(step) - 1) / piece_elements + 1;
  const std::byte* const data = sent_data(step, buffer);
  for (std::size_t index = 0; index < num_pieces; ++index) {
    for (const RankSchedule::Send& send : step.sends) {
      const plan::Chunk piece = piece_of(send.chunk, index, piece_elements);
      if (piece.count == 0) continue;
      transport_->post(send.to_rank,
                       {data + piece.offset * element_size, piece.count * element_size});
    }
    for (const plan::Write& write : step.receives) {
      const plan::Chunk piece = piece_of(write.chunk, index, piece_elements);
      if (piece.count == 0) continue;
      receive_piece(write, buffer.part(piece.offset, piece.count), reduction);
    }
  }
}

// The buffer to send from. A step that overwrites parts of what it sends could overwrite a piece
// before it is sent, so it sends from a copy; a whole chunk is sent and overwritten in equal
// pieces.
const std::byte* MessageGroup::sent_data(const RankSchedule::Step& step, TensorView buffer) {
  const auto* data = static_cast<const std::byte*>(buffer.data);
  if (step.overwrites != RankSchedule::Overwrites::parts_of_chunks) return data;
  scratch_.assign(data, data + buffer.num_bytes());
  return scratch_.data();
}

void MessageGroup::receive_piece(const plan::Write& write, TensorView mine,
                                 const Reduction& reduction) {
  receive_chunk(
      write, rank(), reduction, [&](int from) { return transport_->take(from, mine.num_bytes()); },
      mine, mine);
  for (const int from : write.from_ranks) transport_->release(from);
}

void MessageGroup::send(const CollectiveCall& call) {
  if (!clock_) return transport_->send_message(call.peer, call.header, bytes_of(call.input));
  // The time of its arrival goes ahead of the data.
  const Time arrival = clock_->leave(call.peer, bytes_of(call.input));
  scratch_.resize(sizeof(arrival) + call.input.num_bytes());
  std::memcpy(scratch_.data(), &arrival, sizeof(arrival));
  std::ranges::copy(bytes_of(call.input), scratch_.begin() + sizeof(arrival));
  transport_->send_message(call.peer, call.header, scratch_);
}

void MessageGroup::receive(const CollectiveCall& call) {
  const std::span<std::byte> data{static_cast<std::byte*>(call.input.raw()),
                                  call.input.num_bytes()};
  if (!clock_) {
    return transport_->receive_message(call.peer, call.header, data, call.timeout_seconds);
  }
  Time arrival;
  scratch_.resize(sizeof(arrival) + data.size());
  transport_->receive_message(call.peer, call.header, scratch_, call.timeout_seconds);
  std::memcpy(&arrival, scratch_.data(), sizeof(arrival));
  std::copy(scratch_.begin() + sizeof(arrival), scratch_.end(), data.begin());
  clock_->arrive(call.peer, arrival, data.size(), call.header, call.timeout_seconds);
}

}  // namespace lockstep::comm
