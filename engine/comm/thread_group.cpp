// Ranks that are threads read and write each other's memory. A collective is:
//   announce the call; wait until all have done so, and compare
//   publish the pointer to the buffer, and meet
//   for each step of the plan: for each chunk that this rank receives, read it where it lies and
//   reduce it into place; meet
// An all-reduce by the two-shot plan is one pass over the memory of all ranks. On CUDA devices rank
// 0 enqueues the work of all ranks.
//
// Every flag has one writer. A rank that waits spins for a bounded time, then sleeps on the word
// that its peer changes.
#include "engine/comm/thread_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "engine/comm/announcements.h"
#include "engine/comm/comm_errors.h"
#include "engine/comm/device_group.h"
#include "engine/comm/group.h"
#include "engine/core/thread_context.h"
#include "engine/runtime/cpu_cores.h"
#include "engine/runtime/threads.h"
#include "engine/runtime/wait.h"
#include "engine/trace/observer.h"

namespace lockstep::comm {
namespace {

constexpr auto kOrder = std::memory_order_seq_cst;

// How often a rank has come to a place where ranks meet, in all calls: when its buffer is
// published, and in every step of a plan when it has read all that it receives, and when it has
// written it.
using Progress = std::uint64_t;

// A message from send() to recv().
struct SentTensor {
  CallHeader call;
  Tensor data;                              // a copy
  std::shared_ptr<runtime::Event> written;  // on CUDA
};

// From one rank to another, beside the data of collectives.
struct Channel {
  Queue<SentTensor> messages;
  Queue<Time> times;  // of modelled links
};

// State that a rank shows to all others.
struct RankState {
  Announcements announced;
  alignas(kCacheLine) std::atomic<Progress> progress{0};
  std::atomic<std::byte*> buffer{nullptr};  // that the current plan works on
  Flag<std::uint32_t> in_data;              // 1 while it may use others' memory
  std::atomic<bool> has_left{false};
  alignas(kCacheLine) runtime::WaitWord num_changes;  // changes after any of these
  GroupMember part;                                   // on CUDA: its part in a call, for rank 0
};

struct SharedState {
  explicit SharedState(int world_size)
      : ranks(static_cast<std::size_t>(world_size)), channels(ranks.size() * ranks.size()) {}

  Channel& channel(int from, int to) {
    return channels[static_cast<std::size_t>(from) * ranks.size() + static_cast<std::size_t>(to)];
  }

  std::vector<RankState> ranks;
  std::vector<Channel> channels;
  FirstFailure failure;
};

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

class ThreadGroup final : public Group {
 public:
  ThreadGroup(std::shared_ptr<SharedState> state, GroupShape shape, unsigned num_spins)
      : Group(std::move(shape)), state_(std::move(state)), num_spins_(num_spins) {}

  ~ThreadGroup() override {
    mine().has_left.store(true);
    mine().num_changes.add(1);
  }

  void announce(const CallHeader& call, double timeout_seconds) override {
    enter(call, timeout_seconds);
    mine().announced.publish(call_);
    mine().num_changes.add(1);
  }

  CallHeader announced_by(int peer) override {
    const Announcements& theirs = of(peer).announced;
    wait_for(peer, [&] { return theirs.has_reached(call_.sequence); });
    return theirs.call(call_.sequence);
  }

  void run_schedule(const plan::RankSchedule& schedule, TensorView buffer,
                    const Reduction& reduction, LinkClock* clock) override {
    begin_data();
    mine().buffer.store(static_cast<std::byte*>(buffer.data), std::memory_order_relaxed);
    meet();
    for (const plan::RankSchedule::Step& step : schedule.steps) {
      const bool is_empty = step.sends.empty() && step.receives.empty();
      if (clock != nullptr && !is_empty) clock->begin_step(step, size_of(buffer.dtype));
      run_step(step, buffer, reduction);
      meet();
    }
    end_data();
  }

  void run_directly(const CollectiveCall& call, std::span<void* const> memory) override {
    if (call.header.operation == Operation::send) return send_on_device(call);
    if (call.header.operation == Operation::recv) return receive_on_device(call);
    begin_data();
    if (is_on_cuda(call)) {
      enqueue_on_devices(call);
    } else {
      const TensorView buffer = call.input.view();
      const Reduction reduction{call.input.stream(), call.header.op};
      shared_memory_all_reduce(reduction, factor_of(reduction.op, world_size()), rank(), memory,
                               buffer.dtype, buffer.num_elements);
      meet();
    }
    end_data();
  }

  void abandon(const Error& error) noexcept override {
    fail(error);
    end_data();
    // Peers that use this rank's memory see the failure at their next wait, or are done.
    for (int peer = 0; peer < world_size(); ++peer) {
      const std::atomic<std::uint32_t>& in_data = of(peer).in_data.value;
      for (unsigned round = 0; in_data.load(kOrder) != 0; ++round) runtime::poll_pause(round);
    }
    mine().part = {};
  }

  void post_time(int to, Time time) override { put(to, &Channel::times, time); }
  Time take_time(int from) override { return take(from, &Channel::times); }

  void send_message(int to, const CallHeader& call, Bytes data) override {
    throw_if_failed();
    const Tensor copy = Tensor::empty({data.size()}, DType::uint8, Device{});
    if (!data.empty()) std::memcpy(copy.raw(), data.data(), data.size());
    put(to, &Channel::messages, SentTensor{call, copy, nullptr});
  }

  void receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                       double timeout_seconds) override {
    const SentTensor message = take_message(from, call, timeout_seconds);
    if (!data.empty()) std::memcpy(data.data(), message.data.raw(), data.size());
  }

  void fail(const Error& error) noexcept override {
    if (!state_->failure.set(error)) return;
    for (RankState& rank : state_->ranks) rank.num_changes.add(1);
  }
  void throw_if_failed() const override { state_->failure.throw_if_set(); }

  const Announcements* announced(int rank) const override { return &of(rank).announced; }

 private:
  RankState& of(int rank) const { return state_->ranks[static_cast<std::size_t>(rank)]; }
  RankState& mine() const { return of(rank()); }

  // Between these two a rank may use its peers' memory.
  void begin_data() {
    mine().in_data.value.store(1, kOrder);
    throw_if_failed();
  }
  void end_data() noexcept { mine().in_data.value.store(0, std::memory_order_release); }

  // --- waiting ---

  // Returns when done() is true, which the peer will make it; else fails the group.
  template <typename Done>
  void wait_for(int peer, const Done& done) {
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

  // Waits until all ranks have come as far as this one.
  void meet() {
    mine().progress.store(++progress_, std::memory_order_release);
    mine().num_changes.add(1);
    for (int peer = 0; peer < world_size(); ++peer) {
      const std::atomic<Progress>& theirs = of(peer).progress;
      wait_for(peer, [&] { return theirs.load(std::memory_order_acquire) >= progress_; });
    }
  }

  // --- collectives ---

  // Reads what this rank receives where it lies. A step that overwrites what it sends reads into
  // scratch memory first, and writes into place when all ranks have read.
  void run_step(const plan::RankSchedule::Step& step, TensorView buffer,
                const Reduction& reduction) {
    std::vector<Tensor> scratch;
    for (const plan::Write& write : step.receives) {
      const TensorView mine = buffer.part(write.chunk.offset, write.chunk.count);
      const std::size_t offset = write.chunk.offset * size_of(mine.dtype);
      TensorView out = mine;
      if (step.overwrites_sent) {
        scratch.push_back(Tensor::empty({mine.num_elements}, mine.dtype, Device{}));
        out = scratch.back().view();
      }
      receive_chunk(
          write, rank(), reduction,
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

  void enqueue_on_devices(const CollectiveCall& call) {
    mine().part = {call.stream, call.input, call.output};
    meet();
    if (rank() == 0) {
      std::vector<GroupMember> members;
      for (const RankState& peer : state_->ranks) members.push_back(peer.part);
      enqueue_collective(call_, members);
    }
    meet();
    mine().part = {};
  }

  // --- messages ---

  template <typename T>
  void put(int to, Queue<T> Channel::*queue, T item) {
    (state_->channel(rank(), to).*queue).put(std::move(item));
    mine().num_changes.add(1);
  }
  template <typename T>
  T take(int from, Queue<T> Channel::*queue) {
    Queue<T>& theirs = state_->channel(from, rank()).*queue;
    wait_for(from, [&] { return theirs.has_items(); });
    return theirs.take();
  }

  SentTensor take_message(int from, const CallHeader& call, double timeout_seconds) {
    enter(call, timeout_seconds);
    SentTensor message = take(from, &Channel::messages);
    require_same_message(from, message.call, message.call.num_elements == call.num_elements);
    return message;
  }

  void send_on_device(const CollectiveCall& call) {
    throw_if_failed();
    const Tensor copy = Tensor::empty(call.input.shape(), call.input.dtype(), call.input.device());
    runtime::Stream& compute = call.input.stream();
    if (call.stream != &compute) {
      // The pool gives out what earlier work of the compute stream may still use.
      call.stream->wait(compute.record());
      copy.storage()->record_use(*call.stream);
    }
    copy_on_stream(*call.stream, call.input.view(), copy.view());
    put(call.peer, &Channel::messages, SentTensor{call.header, copy, call.stream->record()});
  }

  void receive_on_device(const CollectiveCall& call) {
    const SentTensor message = take_message(call.peer, call.header, call.timeout_seconds);
    call.stream->wait(message.written);
    message.data.storage()->record_use(*call.stream);
    copy_on_stream(*call.stream, message.data.view(), call.input.view());
  }

  std::shared_ptr<SharedState> state_;
  unsigned num_spins_;
  Progress progress_ = 0;
};

std::unique_ptr<LinkModel> links_of(int rank, const ThreadGroupOptions& options) {
  if (options.make_links) return options.make_links(rank);
  return options.link ? fixed_link(*options.link) : nullptr;
}

void run_rank(Communicator& communicator, const std::function<void(Communicator&)>& fn,
              FirstFailure& failure) {
  ThreadContext context;
  context.rank = communicator.rank();
  context.world_size = communicator.world_size();
  context.group = communicator.observed_group();
  const ThreadContextScope scope(context);
  const auto give_up = [&](ErrorCode code, const char* message) {
    failure.set(Error(code, fmt::format("rank {}", communicator.rank()), message));
    communicator.abort(message);
  };
  try {
    fn(communicator);
  } catch (const Error& error) {
    give_up(error.code(), error.what());
  } catch (const std::exception& error) {
    give_up(ErrorCode::State, error.what());
  } catch (...) {
    give_up(ErrorCode::State, "an exception that is not a std::exception");
  }
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_group(int world_size,
                                                             const ThreadGroupOptions& options) {
  require(world_size >= 1, ErrorCode::Usage, "make_thread_group",
          "a group has at least one rank, found {}", world_size);
  const auto state = std::make_shared<SharedState>(world_size);
  trace::Observer* const observer = trace::observer();
  const std::uint32_t observed_group =
      observer == nullptr ? 0 : observer->group_made({{}, world_size, 0});
  std::vector<std::unique_ptr<Communicator>> group;
  for (int rank = 0; rank < world_size; ++rank) {
    GroupShape shape;
    shape.rank = rank;
    shape.world_size = world_size;
    shape.name = "thread";
    shape.shares_memory = true;
    std::unique_ptr<LinkModel> links = links_of(rank, options);
    // Every spin yields now and then, so it costs less than a sleep even where ranks outnumber
    // cores; unless other threads compute on the cores while modelled messages are under way.
    const unsigned num_spins =
        links != nullptr ? runtime::kSpinRoundsOnSharedCore : runtime::kSpinRounds;
    group.push_back(make_plan_communicator(
        std::make_unique<ThreadGroup>(state, std::move(shape), num_spins), std::move(links)));
    group.back()->set_timeout_seconds(options.timeout_seconds);
    group.back()->set_default_plan(options.default_plan);
    group.back()->set_observed_group(observed_group);
  }
  return group;
}

void run_ranks(int world_size, const std::function<void(Communicator&)>& fn,
               const ThreadGroupOptions& options) {
  auto group = make_thread_group(world_size, options);
  FirstFailure failure;
  std::vector<std::thread> threads;
  const std::vector<int> allowed = runtime::allowed_cores();
  try {
    for (std::size_t i = 0; i < group.size(); ++i) {
      threads.push_back(runtime::start_thread([&, i] {
        runtime::bind_to(runtime::part_of_cores(allowed, i, group.size()));
        run_rank(*std::exchange(group[i], nullptr), fn, failure);
      }));
    }
  } catch (const Error& error) {
    failure.set(error);
    // Those without a thread leave, so that nobody waits for them.
    for (std::size_t i = threads.size(); i < group.size(); ++i) group[i] = nullptr;
  }
  for (std::thread& thread : threads) thread.join();
  failure.throw_if_set();
}

}  // namespace lockstep::comm
