// Ranks that are threads read and write each other's memory. A collective is:
//   announce the call and the pointer to its buffer; wait until all have done so, and compare
//   for each step of the plan: for each chunk that this rank receives, wait until its senders have
//   done the steps before; read the chunk where it lies; reduce it into place
//   wait until no peer reads this rank's buffer any more
// An all-reduce by the two-shot plan is one pass over the memory of all ranks
// (shared_memory_all_reduce.h). On CUDA devices rank 0 enqueues the work of all ranks.
//
// Every flag has one writer. A rank that waits spins for a bounded time, then sleeps on the word
// that its peer changes.
#include "engine/comm/thread_group.h"

#include <array>
#include <cstring>
#include <deque>

#include "engine/comm/announcements.h"
#include "engine/comm/comm_errors.h"
#include "engine/comm/device_calls.h"
#include "engine/comm/plan_communicator.h"
#include "engine/comm/shared_memory_all_reduce.h"
#include "engine/comm/single_thread_group/device_group.h"
#include "engine/trace/observer.h"

namespace lockstep::comm {
namespace {

constexpr auto kOrder = std::memory_order_seq_cst;

// How far a rank has come in a call: 2s + 1 when it has done the steps before step s, 2s + 2 when
// it has read all that it receives in step s; kMet when it has done everything.
using Progress = std::uint64_t;
constexpr unsigned kProgressBits = 24;
constexpr Progress kMet = (Progress{1} << kProgressBits) - 1;

constexpr Progress before_step(std::size_t step) {
  return 2 * step + 1;
}
constexpr Progress has_read(std::size_t step) {
  return 2 * step + 2;
}

// A message from send() to recv().
struct Message {
  CallHeader call;
  Tensor data;                              // a copy
  std::shared_ptr<runtime::Event> written;  // on CUDA
  Time arrival{};                           // over a modelled link
};

// Items that one rank has put down for another, in order.
template <typename T>
class Queue {
 public:
  void put(T item) {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
    size_.fetch_add(1, kOrder);
  }
  bool has_items() const { return size_.load(kOrder) != 0; }
  // REQUIRES: has_items().
  T take() {
    const std::lock_guard lock(mutex_);
    size_.fetch_sub(1, kOrder);
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

 private:
  std::mutex mutex_;
  std::deque<T> items_;
  std::atomic<std::size_t> size_{0};
};

// From one rank to another, beside the data of collectives.
struct Channel {
  Queue<Message> messages;
  Queue<Time> times;  // of modelled links
};

// State that a rank shows to all others.
struct RankState {
  Announcements announced;
  alignas(kCacheLine) std::atomic<Progress> progress{0};  // in the low bits; the call above them
  std::atomic<std::byte*> buffer{nullptr};                // that the current plan works on
  Flag<std::uint32_t> in_data;                            // 1 while it may use others' memory
  Flag<std::uint32_t> has_left;
  alignas(kCacheLine) runtime::WaitWord num_changes;  // changes after any of these
  // On CUDA: its part in a call, for rank 0. Used in turn: a rank may put down its next call while
  // rank 0 has this one in hand.
  std::array<GroupMember, 2> parts;
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
  DeviceGroup devices;  // rank 0 only
};

class ThreadGroup final : public Group {
 public:
  ThreadGroup(std::shared_ptr<SharedState> state, GroupShape shape,
              std::unique_ptr<LinkModel> links)
      : Group(std::move(shape)),
        state_(std::move(state)),
        runner_(rank(), world_size(), this->shape().hosts) {
    if (links == nullptr) return;
    clock_.emplace(std::move(links), rank(), world_size(), this->shape().hosts,
                   LinkClock::Means{[this](int to, Time time) { put(to, &Channel::times, time); },
                                    [this](int from) { return take(from, &Channel::times); },
                                    [this] { throw_if_failed(); },
                                    [this](const Error& error) { fail_and_throw(error); }});
  }

  ~ThreadGroup() override {
    mine().has_left.value.store(1, kOrder);
    mine().num_changes.add(1);
  }

  void note_call(const CallHeader& call) override {
    if (clock_) clock_->note_call(call);
  }

  void announce(const CollectiveCall& call) override {
    enter(call);
    if (clock_) clock_->begin_call(call_, timeout_seconds_);
    if (is_on_cuda(call)) part_of(rank()) = {call.stream, call.input, call.output};
    mine().announced.publish(call_);
    mine().num_changes.add(1);
  }

  CallHeader announced_by(int peer) override {
    const Announcements& theirs = of(peer).announced;
    wait_for(peer, [&] { return theirs.has_reached(call_.sequence); });
    return theirs.call(call_.sequence);
  }

  std::size_t run(const CollectiveCall& call, std::span<void* const> memory) override {
    begin_data();
    const std::size_t num_bytes_sent = is_on_cuda(call)    ? enqueue_on_devices(call)
                                       : is_one_pass(call) ? all_reduce_in_one_pass(call, memory)
                                                           : run_by_plan(call);
    mine().in_data.value.store(0, std::memory_order_release);
    return num_bytes_sent;
  }

  void abandon(const Error& error) noexcept override {
    if (clock_) clock_->abandon_call();
    fail(error);
    mine().in_data.value.store(0, kOrder);
    // Peers that use this rank's memory see the failure at their next wait, or are done.
    for (int peer = 0; peer < world_size(); ++peer) {
      const std::atomic<std::uint32_t>& in_data = of(peer).in_data.value;
      for (unsigned round = 0; in_data.load(kOrder) != 0; ++round) runtime::poll_pause(round);
    }
    part_of(rank()) = {};
  }

  void send(const CollectiveCall& call) override;
  void receive(const CollectiveCall& call) override;

  void fail(const Error& error) noexcept override {
    if (!state_->failure.set(error)) return;
    for (RankState& rank : state_->ranks) rank.num_changes.add(1);
  }
  void throw_if_failed() const override { state_->failure.throw_if_set(); }

  std::string describe_missing(std::uint64_t sequence) const override {
    std::string text;
    for (int peer = 0; peer < world_size(); ++peer) {
      const Announcements& announced = of(peer).announced;
      if (!announced.has_reached(sequence)) add_to_list(text, missing_rank(peer, announced.last()));
    }
    return text;
  }

 private:
  RankState& of(int rank) const { return state_->ranks[static_cast<std::size_t>(rank)]; }
  RankState& mine() const { return of(rank()); }
  GroupMember& part_of(int rank) const { return of(rank).parts[call_.sequence % 2]; }

  void enter(const CollectiveCall& call) {
    throw_if_failed();
    call_ = call.header;
    timeout_seconds_ = call.timeout_seconds;
  }

  void begin_data() {
    mine().in_data.value.store(1, kOrder);
    if (!state_->failure.is_set()) return;
    mine().in_data.value.store(0, kOrder);
    throw_if_failed();
  }

  // --- waiting ---

  // Returns when done() is true, which the peer will make it; else fails the group.
  template <typename Done>
  void wait_for(int peer, const Done& done) {
    // Every spin yields now and then, so it costs less than a sleep even where ranks outnumber
    // cores; unless other threads compute on the cores while modelled messages are under way.
    const unsigned num_spins =
        shape().has_links ? runtime::kSpinRoundsOnSharedCore : runtime::kSpinRounds;
    if (!runtime::spin_until(done, num_spins)) sleep_until(peer, done);
  }

  template <typename Done>
  void sleep_until(int peer, const Done& done) {
    const runtime::Deadline deadline = runtime::deadline_after(timeout_seconds_);
    const RankWait wait{rank(), peer, call_, timeout_seconds_};
    while (true) {
      const std::uint32_t seen = of(peer).num_changes.load();
      const bool has_left = of(peer).has_left.value.load(kOrder) != 0;
      if (done()) return;
      throw_if_failed();
      if (has_left) fail_and_throw(wait.left());
      if (runtime::has_passed(deadline)) fail_and_throw(wait.late(describe_missing_now()));
      of(peer).num_changes.sleep_while_equal(seen, deadline);
    }
  }

  // No rank is missing from a recv.
  std::string describe_missing_now() const {
    return is_point_to_point(call_.operation) ? "" : describe_missing(call_.sequence);
  }

  Progress in_this_call(Progress progress) const {
    return (call_.sequence + 1) << kProgressBits | progress;
  }
  void publish(Progress progress) {
    mine().progress.store(in_this_call(progress), kOrder);
    mine().num_changes.add(1);
  }
  void wait_for_progress(int peer, Progress progress) {
    const std::atomic<Progress>& theirs = of(peer).progress;
    wait_for(peer, [&] { return theirs.load(kOrder) >= in_this_call(progress); });
  }
  void wait_for_readers(const std::vector<RankSchedule::Reader>& readers) {
    for (const auto& reader : readers) wait_for_progress(reader.rank, has_read(reader.step));
  }
  // Waits until all ranks have called it in this call.
  void meet() {
    publish(kMet);
    for (int peer = 0; peer < world_size(); ++peer) wait_for_progress(peer, kMet);
  }

  // --- collectives ---

  std::size_t run_by_plan(const CollectiveCall& call) {
    if (clock_) clock_->begin_data();
    const std::size_t num_bytes_sent = runner_.run(
        call, std::numeric_limits<std::size_t>::max(),
        [this](const RankSchedule& schedule, TensorView buffer, const Reduction& reduction) {
          try {
            run_schedule(schedule, buffer, reduction);
          } catch (const Error& error) {
            abandon(error);  // before the buffer goes, which may be a local copy
            throw;
          }
        });
    if (clock_) clock_->end_data();
    return num_bytes_sent;
  }

  void run_schedule(const RankSchedule& schedule, TensorView buffer, const Reduction& reduction) {
    mine().buffer.store(static_cast<std::byte*>(buffer.data), std::memory_order_relaxed);
    publish(before_step(0));
    for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
      const RankSchedule::Step& step = schedule.steps[s];
      const bool is_empty = step.sends.empty() && step.receives.empty();
      if (clock_ && !is_empty) clock_->begin_step(step, size_of(buffer.dtype));
      if (step.overwrites == RankSchedule::Overwrites::nothing) {
        wait_for_readers(step.wait_for);
        for (const plan::Write& write : step.receives) {
          const TensorView mine = buffer.part(write.chunk.offset, write.chunk.count);
          receive_here(write, s, reduction, mine, mine);
        }
      } else {
        run_exchange(step, s, buffer, reduction);
      }
      publish(before_step(s + 1));
    }
    wait_for_readers(schedule.wait_for);
  }

  // A step that overwrites what it sends: into scratch memory first, and into place when the peers
  // have read.
  void run_exchange(const RankSchedule::Step& step, std::size_t number, TensorView buffer,
                    const Reduction& reduction) {
    scratch_.clear();
    for (const plan::Write& write : step.receives) {
      const TensorView mine = buffer.part(write.chunk.offset, write.chunk.count);
      scratch_.push_back(Tensor::empty({mine.num_elements}, mine.dtype, Device{}));
      receive_here(write, number, reduction, mine, scratch_.back().view());
    }
    publish(has_read(number));
    wait_for_readers(step.wait_for);
    for (std::size_t i = 0; i < step.receives.size(); ++i) {
      const plan::Chunk chunk = step.receives[i].chunk;
      const TensorView mine = buffer.part(chunk.offset, chunk.count);
      std::memcpy(mine.data, scratch_[i].raw(), mine.num_bytes());
    }
  }

  void receive_here(const plan::Write& write, std::size_t step, const Reduction& reduction,
                    TensorView mine, TensorView out) {
    for (const int from : write.from_ranks) wait_for_progress(from, before_step(step));
    const std::size_t offset = write.chunk.offset * size_of(mine.dtype);
    receive_chunk(
        write, rank(), reduction,
        [&](int from) { return of(from).buffer.load(std::memory_order_relaxed) + offset; }, mine,
        out);
  }

  bool is_one_pass(const CollectiveCall& call) const {
    return call.header.operation == Operation::all_reduce &&
           call.header.plan == plan::AllReducePlan::two_shot && shape().shares_memory &&
           world_size() > 1;
  }

  std::size_t all_reduce_in_one_pass(const CollectiveCall& call, std::span<void* const> memory) {
    const TensorView buffer = call.input.view();
    const Reduction reduction{call.input.stream(), call.header.op};
    shared_memory_all_reduce(reduction, factor_of(reduction.op, world_size()), rank(), memory,
                             buffer.dtype, buffer.num_elements);
    meet();
    return elements_sent_in_shared_memory(rank(), world_size(), buffer.num_elements) *
           size_of(buffer.dtype);
  }

  std::size_t enqueue_on_devices(const CollectiveCall& call) {
    if (rank() == 0) {
      std::vector<GroupMember> members;
      for (int peer = 0; peer < world_size(); ++peer) members.push_back(part_of(peer));
      state_->devices.enqueue(call_, members);
    }
    meet();
    part_of(rank()) = {};
    const bool is_gather = call_.operation == Operation::all_gather;
    const std::size_t num_elements = is_gather ? call.output.num_elements() : call_.num_elements;
    return runner_.schedule_of(call_, num_elements).num_elements_sent * size_of(call_.dtype);
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

  std::shared_ptr<SharedState> state_;
  PlanRunner runner_;
  std::optional<LinkClock> clock_;  // of modelled links
  CallHeader call_;                 // the current one
  double timeout_seconds_ = 0;
  std::vector<Tensor> scratch_;
};

// A copy of a tensor, made on the call's stream.
Tensor copy_on_device(const CollectiveCall& call) {
  const Tensor copy = Tensor::empty(call.input.shape(), call.input.dtype(), call.input.device());
  runtime::Stream& compute = call.input.stream();
  if (call.stream != &compute) {
    // The pool gives out what earlier work of the compute stream may still use.
    call.stream->wait(compute.record());
    copy.storage()->record_use(*call.stream);
  }
  copy_on_stream(*call.stream, call.input.view(), copy.view());
  return copy;
}

void ThreadGroup::send(const CollectiveCall& call) {
  throw_if_failed();
  Message message;
  message.call = call.header;
  if (is_on_cuda(call)) {
    message.data = copy_on_device(call);
    message.written = call.stream->record();
  } else {
    message.data = call.input.clone();
    if (clock_) message.arrival = clock_->leave(call.peer, bytes_of(call.input));
  }
  put(call.peer, &Channel::messages, std::move(message));
}

void ThreadGroup::receive(const CollectiveCall& call) {
  enter(call);
  const Message message = take(call.peer, &Channel::messages);
  const CallHeader& sent = message.call;
  if (sent.dtype != call_.dtype || sent.device != call_.device ||
      sent.num_elements != call_.num_elements) {
    fail_and_throw(Error(ErrorCode::Comm, name_of(call_.operation),
                         describe_difference(rank(), call_, call.peer, sent)));
  }
  if (is_on_cuda(call)) {
    call.stream->wait(message.written);
    message.data.storage()->record_use(*call.stream);
    copy_on_stream(*call.stream, message.data.view(), call.input.view());
    return;
  }
  if (call.input.num_bytes() > 0) {
    std::memcpy(call.input.raw(), message.data.raw(), call.input.num_bytes());
  }
  if (clock_) {
    clock_->arrive(call.peer, message.arrival, call.input.num_bytes(), call_, timeout_seconds_);
  }
}

std::unique_ptr<LinkModel> links_of(int rank, const ThreadGroupOptions& options) {
  if (options.make_links) return options.make_links(rank);
  return options.link ? fixed_link(*options.link) : nullptr;
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
    std::unique_ptr<LinkModel> links = links_of(rank, options);
    GroupShape shape{rank, world_size, "thread", {}, true, false};
    if (links != nullptr) shape = behind(*links, std::move(shape));
    group.push_back(std::make_unique<PlanCommunicator>(
        std::make_unique<ThreadGroup>(state, std::move(shape), std::move(links))));
    group.back()->set_timeout_seconds(options.timeout_seconds);
    group.back()->set_default_plan(options.default_plan);
    group.back()->set_observed_group(observed_group);
  }
  return group;
}

}  // namespace lockstep::comm
