#include "engine/comm/thread_rank.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/trace/observer.h"

namespace lockstep::comm {
namespace {

constexpr auto kOrder = std::memory_order_seq_cst;

// This rank's part of a two-shot all-reduce; all ranks wait for each other before and afterwards.
// buffers[r]: num_elements of `dtype`, of rank r. The result has the bits of the two-shot plan.
//
// Rank r owns chunk r. Piece by piece it reads the piece from all ranks, adds the values up in the
// order of ranks, and writes the sum to all ranks while it is still in the first-level cache. No
// other rank touches chunk r in between, so the two steps of the plan become one, and every element
// is read once and written once on each rank.
void shared_memory_all_reduce(const Reduction& reduction, double factor, int rank,
                              std::span<void* const> buffers, DType dtype,
                              std::size_t num_elements) {
  constexpr std::size_t kPieceBytes = 16 * 1024;
  const std::size_t element_size = size_of(dtype);
  const auto mine = static_cast<std::size_t>(rank);
  const plan::Chunk chunk = plan::even_chunk(num_elements, buffers.size(), mine);
  const std::size_t piece_elements = kPieceBytes / element_size;
  thread_local std::vector<ConstTensorView> sources;
  sources.resize(buffers.size());
  for (std::size_t begin = chunk.offset; begin < chunk.end(); begin += piece_elements) {
    const std::size_t count = std::min(piece_elements, chunk.end() - begin);
    const auto piece_of = [&](std::size_t r) {
      return TensorView{static_cast<std::byte*>(buffers[r]) + begin * element_size, dtype, count};
    };
    for (std::size_t r = 0; r < buffers.size(); ++r) sources[r] = piece_of(r);
    const TensorView sum = piece_of(mine);
    reduce_in_order(reduction.stream, reduction.op, factor, sources, sum);
    for (std::size_t r = 0; r < buffers.size(); ++r) {
      if (r != mine) std::memcpy(piece_of(r).data, sum.data, sum.num_bytes());
    }
  }
}

}  // namespace

ThreadRank::~ThreadRank() {
  mine().has_left.store(true);
  mine().num_changes.add(1);
}

template <typename Done>
void ThreadRank::wait_for(int peer, const Done& done) {
  if (runtime::spin_until(done, num_spins_)) return;
  const runtime::Deadline deadline = runtime::deadline_after(timeout_seconds_);
  for (;;) {
    // Read first, so that what the peer did before it left counts.
    const std::uint32_t seen = of(peer).num_changes.load();
    const bool has_left = of(peer).has_left.load();
    if (done()) return;
    throw_if_failed();
    if (has_left) fail_and_throw(waiting_for(peer).left());
    if (runtime::has_passed(deadline)) {
      fail_and_throw(waiting_for(peer).late(describe_missing(call_.sequence)));
    }
    of(peer).num_changes.sleep_while_equal(seen, deadline);
  }
}

template <typename T>
T ThreadRank::take(int from, Queue<T> Channel::*queue) {
  Queue<T>& theirs = state_->channel(from, rank()).*queue;
  wait_for(from, [&] { return theirs.has_items(); });
  return theirs.take();
}

void ThreadRank::meet() {
  mine().progress.store(++progress_, std::memory_order_release);
  mine().num_changes.add(1);
  for (int peer = 0; peer < world_size(); ++peer) {
    const std::atomic<Progress>& theirs = of(peer).progress;
    wait_for(peer, [&] { return theirs.load(std::memory_order_acquire) >= progress_; });
  }
}

void ThreadRank::announce(const CallHeader& call, double timeout_seconds) {
  enter(call, timeout_seconds);
  mine().announced.publish(call_);
  mine().num_changes.add(1);
}

CallHeader ThreadRank::announced_by(int peer) {
  const Announcements& theirs = of(peer).announced;
  wait_for(peer, [&] { return theirs.has_reached(call_.sequence); });
  return theirs.call(call_.sequence);
}

// Until end_data() this rank may use its peers' memory.
void ThreadRank::begin_data() {
  mine().in_data.value.store(1, kOrder);
  throw_if_failed();
}

void ThreadRank::end_data() noexcept {
  mine().in_data.value.store(0, std::memory_order_release);
}

void ThreadRank::run_schedule(const plan::RankSchedule& schedule, TensorView buffer,
                              const Reduction& reduction) {
  mine().buffer.store(static_cast<std::byte*>(buffer.data), std::memory_order_relaxed);
  meet();
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    begin_step(schedule.steps[i]);
    run_step(schedule.steps[i], buffer, reduction);
    tell_arrivals(i, schedule.steps[i], buffer);
    meet();
  }
}

void ThreadRank::tell_arrivals(std::size_t number, const plan::RankSchedule::Step& step,
                               TensorView buffer) const {
  trace::Observer* const observer = trace::observer_of_arrivals();
  if (observer == nullptr) return;
  for (const plan::Receive& receive : step.receives) {
    observer->arrived({.operation = name_of(call_.operation),
                       .sequence = call_.sequence,
                       .step = number,
                       .to = rank(),
                       .from = receive.from_ranks,
                       .offset = receive.chunk.offset,
                       .adds = receive.combine == plan::Combine::add,
                       .values = buffer.part(receive.chunk.offset, receive.chunk.count)});
  }
}

// Reads what this rank receives where it lies. A step that overwrites what it sends reads into
// scratch memory first, and writes into place when all ranks have read.
void ThreadRank::run_step(const plan::RankSchedule::Step& step, TensorView buffer,
                          const Reduction& reduction) {
  std::vector<Tensor> scratch;
  for (const plan::Receive& receive : step.receives) {
    const TensorView mine = buffer.part(receive.chunk.offset, receive.chunk.count);
    const std::size_t offset = receive.chunk.offset * size_of(mine.dtype);
    TensorView out = mine;
    if (step.overwrites_sent) {
      scratch.push_back(Tensor::empty({mine.num_elements}, mine.dtype, Device{}));
      out = scratch.back().view();
    }
    receive_chunk(
        receive, rank(), reduction,
        [&](int from) { return of(from).buffer.load(std::memory_order_relaxed) + offset; }, mine,
        out);
  }
  if (!step.overwrites_sent) {
    ++progress_;  // other ranks may meet here
    return;
  }
  meet();
  for (std::size_t i = 0; i < scratch.size(); ++i) {
    const plan::Chunk chunk = step.receives[i].chunk;
    const TensorView mine = buffer.part(chunk.offset, chunk.count);
    std::memcpy(mine.data, scratch[i].raw(), mine.num_bytes());
  }
}

void ThreadRank::run_directly(const CollectiveCall& call, std::span<void* const> memory) {
  const TensorView buffer = call.input.view();
  const Reduction reduction{call.input.stream(), call.header.op};
  shared_memory_all_reduce(reduction, factor_of(reduction.op, world_size()), rank(), memory,
                           buffer.dtype, buffer.num_elements);
  meet();
}

void ThreadRank::abandon(const Error& error) noexcept {
  fail(error);
  end_data();
  // Peers that use this rank's memory see the failure at their next wait, or are done.
  for (int peer = 0; peer < world_size(); ++peer) {
    const std::atomic<std::uint32_t>& in_data = of(peer).in_data.value;
    for (unsigned round = 0; in_data.load(kOrder) != 0; ++round) runtime::poll_pause(round);
  }
}

std::int64_t ThreadRank::take_note(int from) {
  return take(from, &Channel::notes);
}

void ThreadRank::send_message(int to, const CallHeader& call, Bytes data) {
  throw_if_failed();
  const Tensor copy = Tensor::empty({data.size()}, DType::uint8, Device{});
  if (!data.empty()) std::memcpy(copy.raw(), data.data(), data.size());
  put(to, &Channel::messages, SentTensor{call, copy, nullptr});
}

void ThreadRank::receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                                 double timeout_seconds) {
  const SentTensor message = take_message(from, call, timeout_seconds);
  if (!data.empty()) std::memcpy(data.data(), message.data.raw(), data.size());
}

SentTensor ThreadRank::take_message(int from, const CallHeader& call, double timeout_seconds) {
  enter(call, timeout_seconds);
  SentTensor message = take(from, &Channel::messages);
  require_same_message(from, message.call, message.call.num_elements == call.num_elements);
  return message;
}

void ThreadRank::fail(const Error& error) noexcept {
  if (!state_->failure.set(error)) return;
  for (ThreadState& rank : state_->ranks) rank.num_changes.add(1);
}

}  // namespace lockstep::comm
