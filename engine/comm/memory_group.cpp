#include "engine/comm/memory_group.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "engine/comm/comm_errors.h"
#include "engine/runtime/threads.h"
#include "engine/trace/observer.h"

namespace lockstep::comm {
namespace {

constexpr auto kSeqCst = std::memory_order_seq_cst;
constexpr std::size_t kNumUses = 2;

// A death does not wake sleepers, so they check now and then that their peer is alive.
constexpr std::chrono::milliseconds kLongestSleep{64};
// A process that was stopped while it used this rank's memory may never go on.
constexpr double kLongestAbandonSeconds = 1;

std::int64_t nanoseconds_now() {
  return std::chrono::nanoseconds(runtime::Clock::now().time_since_epoch()).count();
}

// This rank's part of a two-shot all-reduce; all ranks wait for each other before and afterwards.
// buffers[r]: num_elements of `dtype`, of rank r. The result has the bits of the two-shot plan.
//
// Rank r owns chunk r. Piece by piece it reads the piece from all ranks, adds the values up in the
// order of ranks, and writes the sum to all ranks while it is still in the first-level cache. No
// other rank touches chunk r in between, so the two steps of the plan become one, and every element
// is read once and written once on each rank.
void shared_memory_all_reduce(const Reduction& reduction, double factor, int rank,
                              std::span<std::byte* const> buffers, DType dtype,
                              std::size_t num_elements) {
  constexpr std::size_t kPieceBytes = 16 * 1024;
  const std::size_t element_size = size_of(dtype);
  const auto mine = static_cast<std::size_t>(rank);
  const plan::Chunk chunk = plan::even_chunk(num_elements, buffers.size(), mine);
  const std::size_t piece_elements = kPieceBytes / element_size;
  thread_local std::vector<ConstTensorView> sources;
  thread_local std::vector<TensorView> others;
  for (std::size_t begin = chunk.offset; begin < chunk.end(); begin += piece_elements) {
    const std::size_t count = std::min(piece_elements, chunk.end() - begin);
    const auto piece_of = [&](std::size_t r) {
      return TensorView{buffers[r] + begin * element_size, dtype, count};
    };
    sources.clear();
    others.clear();
    for (std::size_t r = 0; r < buffers.size(); ++r) {
      sources.push_back(piece_of(r));
      if (r != mine) others.push_back(piece_of(r));
    }
    reduce(reduction.stream, {sources, factor, piece_of(mine), reduction.op, others});
  }
}

}  // namespace

std::size_t bytes_to_share(std::size_t num_ranks) {
  return sizeof(SharedFailure) + num_ranks * sizeof(Member) +
         kNumUses * num_ranks * num_ranks * sizeof(Channel);
}

runtime::Spin spin_of_ranks(std::size_t num_ranks, LinkKind links) {
  if (links == LinkKind::modelled) return runtime::kSpinBesideComputation;
  return num_ranks <= runtime::num_cores() ? runtime::kSpinOnOwnCore : runtime::kTakeTurns;
}

SharedFailure& MemoryRank::failure() const {
  return *reinterpret_cast<SharedFailure*>(shared_.get());
}

Member& MemoryRank::member(int rank) const {
  return reinterpret_cast<Member*>(shared_.get() + sizeof(SharedFailure))[rank];
}

std::size_t MemoryRank::index(Use use, int peer) const {
  return static_cast<std::size_t>(use) * static_cast<std::size_t>(world_size()) +
         static_cast<std::size_t>(peer);
}

Channel& MemoryRank::channel(Use use, int from, int to) const {
  const auto n = static_cast<std::size_t>(world_size());
  auto* const channels =
      reinterpret_cast<Channel*>(shared_.get() + sizeof(SharedFailure) + n * sizeof(Member));
  return channels[index(use, from) * n + static_cast<std::size_t>(to)];
}

MemoryRank::MemoryRank(GroupShape shape, SharedState shared, runtime::Spin spin,
                       double timeout_seconds)
    : Transport(std::move(shape)),
      memory_(std::move(shared.memory)),
      shared_(std::move(shared.data)),
      spin_(spin),
      sent_(kNumUses * static_cast<std::size_t>(world_size())),
      received_(sent_.size()) {
  timeout_seconds_ = timeout_seconds;
}

MemoryRank::~MemoryRank() {
  mine().has_left.value.store(1, kSeqCst);
  mine().num_changes.add(1);
  const runtime::Deadline deadline = runtime::deadline_after(timeout_seconds_);
  for (int peer = 0; peer < world_size(); ++peer) {
    if (memory_->process_of(peer) != 0) {
      sleep_until(peer, deadline, [&] { return has_read_all(peer); });
    }
    for (const Use use : {Use::plan, Use::send}) {
      const bool is_done = has_read_all(peer);
      reclaim(use, peer, is_done ? 0 : 1);
      for (const Block& block : sent_[index(use, peer)].messages) memory_->keep(block);
    }
  }
  if (copy_.data != nullptr) memory_->pool().release(copy_);
}

// --- waiting ---

template <typename Done>
void MemoryRank::wait_for(int peer, const Done& done) {
  if (runtime::spin_until(done, spin_)) return;
  const Waited waited = sleep_until(peer, runtime::deadline_after(timeout_seconds_), done);
  if (waited != Waited::done) fail_waiting(peer, waited);
}

template <typename Done>
MemoryRank::Waited MemoryRank::sleep_until(int peer, const runtime::Deadline& deadline,
                                           const Done& done) const {
  for (;;) {
    mine().looked_at.value.store(nanoseconds_now(), std::memory_order_relaxed);
    // Before done(), since the peer's last writes before it left still count.
    const std::uint32_t seen = member(peer).num_changes.load();
    const Waited waited = look_at(peer, deadline);
    if (done()) return Waited::done;
    if (waited != Waited::done) return waited;
    const runtime::Deadline next_look = runtime::Clock::now() + kLongestSleep;
    member(peer).num_changes.sleep_while_equal(seen, runtime::earlier(deadline, next_look));
  }
}

// The state of the member that this one waits for; done: nothing new, keep waiting.
MemoryRank::Waited MemoryRank::look_at(int peer, const runtime::Deadline& deadline) const {
  if (failure().state.load(kSeqCst) != SharedFailure::none) return Waited::failed;
  // In this order: a rank that leaves says so before its process ends.
  const bool is_alive = memory_->is_alive(peer);
  if (member(peer).has_left.value.load(kSeqCst) != 0) return Waited::left;
  if (!is_alive) return Waited::died;
  return runtime::has_passed(deadline) ? Waited::timed_out : Waited::done;
}

void MemoryRank::fail_waiting(int peer, Waited waited) {
  RankWait wait = waiting_for(peer);
  if (waited == Waited::died) fail_and_throw(wait.died(memory_->process_of(peer)));
  if (waited != Waited::timed_out) fail_and_throw(wait.left());  // or what broke the group
  if (call_.operation == Operation::recv) fail_and_throw(wait.late(""));
  wait.peer = name_of_rank(find_stopped(peer));
  fail_and_throw(wait.late(describe_missing(call_.sequence)));
}

// The rank that keeps all others waiting: the peer, or, if the peer itself waits, another rank that
// has not looked for a while.
int MemoryRank::find_stopped(int peer) const {
  constexpr std::chrono::nanoseconds kLong = 8 * kLongestSleep;
  const auto has_stopped = [&](int m) {
    return nanoseconds_now() - member(m).looked_at.value.load(std::memory_order_relaxed) >
           kLong.count();
  };
  if (has_stopped(peer)) return peer;
  for (int m = 0; m < world_size(); ++m) {
    if (has_stopped(m)) return m;
  }
  return peer;
}

void MemoryRank::meet() {
  mine().progress.store(++progress_, std::memory_order_release);
  mine().num_changes.add(1);
  for (int peer = 0; peer < world_size(); ++peer) {
    const std::atomic<Progress>& theirs = member(peer).progress;
    wait_for(peer, [&] { return theirs.load(std::memory_order_acquire) >= progress_; });
  }
}

// --- collectives ---

// Tells the values of a small call, and where peers find the buffer of a large one that needs no
// plan. Peers have read the values of the call before the last one, since they came to the last.
void MemoryRank::announce(const CollectiveCall& call) {
  enter(call.header, call.timeout_seconds);
  CallHeader told = call_;
  const std::size_t num_bytes = told.num_elements * size_of(told.dtype);
  if (is_small(told)) {
    std::memcpy(mine().values[told.sequence % 2], told.memory, num_bytes);
  } else if (takes_one_pass(shape(), told)) {
    told.memory = reinterpret_cast<void*>(share(told.memory, num_bytes));
  }
  mine().announced.publish(told);
  mine().num_changes.add(1);
}

CallHeader MemoryRank::announced_by(int peer) {
  const Announcements& theirs = member(peer).announced;
  wait_for(peer, [&] { return theirs.has_reached(call_.sequence); });
  return theirs.call(call_.sequence);
}

// Until end_data() this rank may use its peers' memory. A barrier uses none: all have come, so it
// has succeeded, whatever became of a rank since.
void MemoryRank::begin_data() {
  if (call_.operation == Operation::barrier) return;
  mine().in_data.value.store(1, kSeqCst);
  throw_if_failed();
}

void MemoryRank::end_data() noexcept {
  mine().in_data.value.store(0, std::memory_order_release);
}

Address MemoryRank::share(const void* data, std::size_t num_bytes) {
  const Address address = memory_->address_of(data);
  is_copied_ = address == 0 && num_bytes > 0;
  if (!is_copied_) return address;
  if (copy_.num_bytes < num_bytes) {
    if (copy_.data != nullptr) memory_->pool().release(std::exchange(copy_, {}));
    copy_ = memory_->allocate(num_bytes);
  }
  std::memcpy(copy_.data, data, num_bytes);
  return memory_->address_of(copy_.data);
}

void MemoryRank::run_schedule(const plan::RankSchedule& schedule, TensorView buffer,
                              const Reduction& reduction) {
  mine().buffer.store(share(buffer.data, buffer.num_bytes()), std::memory_order_relaxed);
  const TensorView shared{is_copied_ ? copy_.data : buffer.data, buffer.dtype, buffer.num_elements};
  meet();
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    begin_step(schedule.steps[i]);
    run_step(schedule.steps[i], shared, reduction);
    tell_arrivals(i, schedule.steps[i], shared);
    meet();
  }
  if (is_copied_) std::memcpy(buffer.data, shared.data, buffer.num_bytes());
}

void MemoryRank::tell_arrivals(std::size_t number, const plan::RankSchedule::Step& step,
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
                       .values = buffer.slice(receive.chunk.offset, receive.chunk.count)});
  }
}

// Reads what this rank receives where it lies. A step that overwrites what it sends reads into
// scratch memory first, and writes into place when all ranks have read.
void MemoryRank::run_step(const plan::RankSchedule::Step& step, TensorView buffer,
                          const Reduction& reduction) {
  std::vector<Tensor> scratch;
  for (const plan::Receive& receive : step.receives) {
    const TensorView mine = buffer.slice(receive.chunk.offset, receive.chunk.count);
    const std::size_t offset = receive.chunk.offset * size_of(mine.dtype);
    TensorView out = mine;
    if (step.overwrites_sent) {
      scratch.push_back(Tensor::empty({mine.num_elements}, mine.dtype, Device{}));
      out = scratch.back().view();
    }
    receive_chunk(
        receive, rank(), reduction,
        [&](int from) {
          const Address theirs = member(from).buffer.load(std::memory_order_relaxed);
          return memory_->at(from, theirs + offset, mine.num_bytes());
        },
        mine, out);
  }
  if (!step.overwrites_sent) {
    ++progress_;  // for the meeting below, of ranks that overwrite what they send
    return;
  }
  meet();
  for (std::size_t i = 0; i < scratch.size(); ++i) {
    const plan::Chunk chunk = step.receives[i].chunk;
    const TensorView mine = buffer.slice(chunk.offset, chunk.count);
    std::memcpy(mine.data, scratch[i].raw(), mine.num_bytes());
  }
}

bool MemoryRank::is_small(const CallHeader& call) const {
  const std::size_t num_bytes = call.num_elements * size_of(call.dtype);
  const std::size_t most = world_size() == 2 ? kMostAnnouncedByTwo : kMostAnnouncedBytes;
  return num_bytes > 0 && num_bytes <= most && takes_one_pass(shape(), call);
}

void MemoryRank::combine_announced(const CollectiveCall& call) const {
  const TensorView buffer = call.input.view();
  thread_local std::vector<ConstTensorView> sources;
  sources.clear();
  for (int m = 0; m < world_size(); ++m) {
    const std::byte* const values = member(m).values[call.header.sequence % 2];
    sources.push_back({values, buffer.dtype, buffer.num_elements});
  }
  reduce(call.input.stream(),
         {sources, factor_of(call.header.op, world_size()), buffer, call.header.op});
}

void MemoryRank::run_directly(const CollectiveCall& call, std::span<void* const> memory) {
  if (is_small(call.header)) return combine_announced(call);
  const TensorView buffer = call.input.view();
  const Reduction reduction{call.input.stream(), call.header.op};
  thread_local std::vector<std::byte*> buffers;
  buffers.resize(memory.size());
  for (int peer = 0; peer < world_size(); ++peer) {
    if (peer == rank() || buffer.num_elements == 0) continue;
    const auto r = static_cast<std::size_t>(peer);
    buffers[r] = memory_->at(peer, reinterpret_cast<Address>(memory[r]), buffer.num_bytes());
  }
  auto* const mine = static_cast<std::byte*>(is_copied_ ? copy_.data : buffer.data);
  buffers[static_cast<std::size_t>(rank())] = mine;
  shared_memory_all_reduce(reduction, factor_of(reduction.op, world_size()), rank(), buffers,
                           buffer.dtype, buffer.num_elements);
  meet();
  if (is_copied_) std::memcpy(buffer.data, mine, buffer.num_bytes());
}

void MemoryRank::abandon(const Error& error) noexcept {
  fail(error);
  end_data();
  // Peers that use this rank's memory see the failure at their next wait, or are done.
  for (int peer = 0; peer < world_size(); ++peer) {
    const std::atomic<std::uint32_t>& in_data = member(peer).in_data.value;
    const bool is_process = memory_->process_of(peer) != 0;
    const runtime::Deadline deadline =
        is_process ? runtime::deadline_after(kLongestAbandonSeconds) : runtime::Deadline{};
    for (unsigned round = 0; in_data.load(kSeqCst) != 0; ++round) {
      if (is_process && (runtime::has_passed(deadline) || !memory_->is_alive(peer))) break;
      runtime::poll_pause(round);
    }
  }
}

// --- messages ---

void MemoryRank::post(Use use, int to, const CallHeader& call, Bytes data) {
  reclaim(use, to, 1);
  const Block block = memory_->allocate(sizeof(MessageNode) + data.size());
  auto* const message = new (block.data) MessageNode{0, data.size(), call};
  if (!data.empty()) std::memcpy(message + 1, data.data(), data.size());
  Sent& sent = sent_[index(use, to)];
  Address& link = sent.num_sent == 0 ? channel(use, rank(), to).first
                                     : static_cast<MessageNode*>(sent.messages.back().data)->next;
  link = memory_->address_of(message);
  sent.messages.push_back(block);
  channel(use, rank(), to).num_sent.value.store(++sent.num_sent, std::memory_order_release);
  mine().num_changes.add(1);
}

void MemoryRank::reclaim(Use use, int to, std::size_t num_kept) {
  Sent& sent = sent_[index(use, to)];
  const std::uint64_t num_unread =
      sent.num_sent - channel(use, rank(), to).num_taken.value.load(std::memory_order_acquire);
  while (sent.messages.size() > num_unread + num_kept) {
    memory_->pool().release(sent.messages.front());
    sent.messages.pop_front();
  }
}

Transport::Message MemoryRank::take(Use use, int from) {
  Received& received = received_[index(use, from)];
  const Channel& channel = this->channel(use, from, rank());
  wait_for(from, [&] {
    return channel.num_sent.value.load(std::memory_order_acquire) > received.num_taken;
  });
  const auto message_at = [&](Address address, std::size_t data_bytes) {
    return reinterpret_cast<const MessageNode*>(
        memory_->at(from, address, sizeof(MessageNode) + data_bytes));
  };
  received.last = received.num_taken == 0 ? channel.first : message_at(received.last, 0)->next;
  const MessageNode& message = *message_at(received.last, message_at(received.last, 0)->num_bytes);
  return {message.call, {reinterpret_cast<const std::byte*>(&message + 1), message.num_bytes}};
}

void MemoryRank::release(Use use, int from) {
  Received& received = received_[index(use, from)];
  channel(use, from, rank()).num_taken.value.store(++received.num_taken, std::memory_order_release);
  mine().num_changes.add(1);
}

bool MemoryRank::has_read_all(int peer) const {
  return std::ranges::all_of(std::array{Use::plan, Use::send}, [&](Use use) {
    return channel(use, rank(), peer).num_taken.value.load(std::memory_order_acquire) ==
           sent_[index(use, peer)].num_sent;
  });
}

// --- failing ---

void MemoryRank::fail(const Error& error) noexcept {
  SharedFailure& record = failure();
  const std::string bytes = encode(error, sizeof record.error);
  std::uint32_t expected = SharedFailure::none;
  if (!record.state.compare_exchange_strong(expected, SharedFailure::being_written, kSeqCst)) {
    return;
  }
  record.num_bytes = static_cast<std::uint32_t>(bytes.copy(record.error, bytes.size()));
  record.state.store(SharedFailure::written, kSeqCst);
  for (int m = 0; m < world_size(); ++m) member(m).num_changes.add(1);  // wakes those who wait
}

void MemoryRank::throw_if_failed() const {
  const SharedFailure& record = failure();
  if (record.state.load(kSeqCst) == SharedFailure::none) return;
  // It is written within a microsecond, unless its writer is stopped or killed at that very moment.
  const runtime::Deadline deadline = runtime::deadline_after(0.2);
  for (unsigned round = 0; record.state.load(kSeqCst) != SharedFailure::written; ++round) {
    require(!runtime::has_passed(deadline), ErrorCode::Comm, "collective",
            "a rank died while it told why the group failed");
    runtime::poll_pause(round);
  }
  throw decode_error({record.error, std::min<std::size_t>(record.num_bytes, sizeof record.error)});
}

}  // namespace lockstep::comm
