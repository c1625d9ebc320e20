#include "tests/emulated_gpu/executor.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "tests/emulated_gpu/device/executor_calls.h"
#include "tests/emulated_gpu/fiber.h"

constinit thread_local uint3 threadIdx{};
constinit thread_local uint3 blockIdx{};
constinit thread_local dim3 blockDim{};
constinit thread_local dim3 gridDim{};

namespace emulated_gpu {
namespace {

using device::SourceLine;
using device::WarpValues;

enum class Order { forward, reverse };

uint3 position(unsigned index, const dim3& size) {
  return {index % size.x, index / size.x % size.y, index / size.x / size.y};
}

// Lanes of a warp that meet in an intrinsic with the same mask.
struct WarpMeeting {
  unsigned mask = 0;
  const char* intrinsic = nullptr;
  WarpValues arriving;
  WarpValues met;  // stays until all the lanes have come to the next meeting
};

struct Warp {
  unsigned living = 0;
  std::deque<WarpMeeting> meetings;  // one for each mask that was ever used
};

struct Thread {
  Fiber* fiber = nullptr;  // where it stopped; nullptr before it starts and at its end
  const WarpMeeting* meeting = nullptr;  // what it waits in; nullptr: the block's barrier
  SourceLine where{};
  bool waits = false;
  bool has_exited = false;
};

// Runs the blocks of grids, one at a time. Each OS thread has its own.
class BlockRunner {
 public:
  void run(const Grid& grid, Order order);

  void wait_for_block(SourceLine where);
  const WarpValues& exchange_in_warp(const char* intrinsic, unsigned mask, const void* value,
                                     std::size_t num_bytes, SourceLine where);
  unsigned lane() const { return current_ % 32; }
  [[noreturn]] void fail(SourceLine where, const char* format, ...) const;

 private:
  void run_block();
  static void run_threads(void* runner);
  void become(unsigned index);
  void stop(const WarpMeeting* meeting, SourceLine where);
  void exit_thread();
  void release_barrier();
  void release_meeting(unsigned warp, WarpMeeting& meeting);
  bool is_complete(unsigned warp, const WarpMeeting& meeting) const;
  WarpMeeting& meeting_of(unsigned warp, unsigned mask);
  [[noreturn]] void fail_deadlock() const;

  const Grid* grid_ = nullptr;
  Order order_ = Order::forward;

  unsigned num_threads_ = 0;
  unsigned num_started_ = 0;
  unsigned num_exited_ = 0;
  unsigned current_ = 0;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::deque<unsigned> ready_;  // threads that were stopped and may go on

  unsigned num_at_barrier_ = 0;
  SourceLine barrier_line_{};

  Fiber scheduler_;
  Fiber* running_ = &scheduler_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;  // fibers at the top of run_threads
};

BlockRunner& runner() {
  static thread_local BlockRunner instance;
  return instance;
}

void BlockRunner::run(const Grid& grid, Order order) {
  grid_ = &grid;
  order_ = order;
  blockDim = grid.block;
  gridDim = grid.grid;
  num_threads_ = grid.block.x * grid.block.y * grid.block.z;
  const std::size_t num_blocks = std::size_t{grid.grid.x} * grid.grid.y * grid.grid.z;
  for (std::size_t i = 0; i < num_blocks; ++i) {
    const std::size_t index = order == Order::forward ? i : num_blocks - 1 - i;
    blockIdx = {static_cast<unsigned>(index % grid.grid.x),
                static_cast<unsigned>(index / grid.grid.x % grid.grid.y),
                static_cast<unsigned>(index / grid.grid.x / grid.grid.y)};
    run_block();
  }
}

void BlockRunner::run_block() {
  num_started_ = 0;
  num_exited_ = 0;
  num_at_barrier_ = 0;
  threads_.assign(num_threads_, {});
  warps_.resize((num_threads_ + 31) / 32);
  for (unsigned w = 0; w < warps_.size(); ++w) {
    const unsigned lanes = std::min(32u, num_threads_ - w * 32);
    warps_[w].living = lanes == 32 ? ~0u : (1u << lanes) - 1;
  }
  while (num_exited_ < num_threads_) {
    if (num_started_ < num_threads_) {
      if (idle_.empty()) {
        fibers_.push_back(std::make_unique<Fiber>(&BlockRunner::run_threads, this));
        idle_.push_back(fibers_.back().get());
      }
      running_ = idle_.back();
      idle_.pop_back();
    } else if (!ready_.empty()) {
      become(ready_.front());
      ready_.pop_front();
      running_ = threads_[current_].fiber;
    } else {
      fail_deadlock();
    }
    running_->switch_from(scheduler_);
    running_ = &scheduler_;
  }
}

// The life of a fiber: runs threads that have not started, one after the other, for ever.
void BlockRunner::run_threads(void* runner) {
  auto& self = *static_cast<BlockRunner*>(runner);
  while (true) {
    while (self.num_started_ < self.num_threads_) {
      const unsigned i = self.num_started_++;
      self.become(self.order_ == Order::forward ? i : self.num_threads_ - 1 - i);
      self.grid_->thread_body();
      self.exit_thread();
    }
    self.idle_.push_back(self.running_);
    self.scheduler_.switch_from(*self.running_);
  }
}

void BlockRunner::become(unsigned index) {
  current_ = index;
  threadIdx = position(index, grid_->block);
}

// The running thread goes on when something has put it into ready_.
void BlockRunner::stop(const WarpMeeting* meeting, SourceLine where) {
  Thread& thread = threads_[current_];
  thread.fiber = running_;
  thread.meeting = meeting;
  thread.where = where;
  thread.waits = true;
  scheduler_.switch_from(*running_);
}

void BlockRunner::exit_thread() {
  threads_[current_].has_exited = true;
  ++num_exited_;
  const unsigned warp = current_ / 32;
  warps_[warp].living &= ~(1u << lane());
  for (WarpMeeting& meeting : warps_[warp].meetings) {
    if (meeting.arriving.lanes != 0 && is_complete(warp, meeting)) release_meeting(warp, meeting);
  }
  if (num_at_barrier_ > 0 && num_at_barrier_ + num_exited_ == num_threads_) release_barrier();
}

// An exited thread counts as arrived, as it does on a GPU.
void BlockRunner::wait_for_block(SourceLine where) {
  if (num_at_barrier_ == 0) {
    barrier_line_ = where;
  } else if (barrier_line_.line != where.line || std::strcmp(barrier_line_.file, where.file) != 0) {
    fail(where, "is in another barrier than a thread of its block, which waits in the one at %s:%d",
         barrier_line_.file, barrier_line_.line);
  }
  ++num_at_barrier_;
  if (num_at_barrier_ + num_exited_ == num_threads_) {
    release_barrier();
  } else {
    stop(nullptr, where);
  }
}

void BlockRunner::release_barrier() {
  num_at_barrier_ = 0;
  for (unsigned i = 0; i < num_threads_; ++i) {
    const unsigned index = order_ == Order::forward ? i : num_threads_ - 1 - i;
    Thread& thread = threads_[index];
    if (thread.waits && thread.meeting == nullptr) {
      thread.waits = false;
      ready_.push_back(index);
    }
  }
}

WarpMeeting& BlockRunner::meeting_of(unsigned warp, unsigned mask) {
  for (WarpMeeting& meeting : warps_[warp].meetings) {
    if (meeting.mask == mask) return meeting;
  }
  WarpMeeting& meeting = warps_[warp].meetings.emplace_back();
  meeting.mask = mask;
  return meeting;
}

bool BlockRunner::is_complete(unsigned warp, const WarpMeeting& meeting) const {
  const unsigned expected = meeting.mask & warps_[warp].living;
  return (meeting.arriving.lanes & expected) == expected;
}

const WarpValues& BlockRunner::exchange_in_warp(const char* intrinsic, unsigned mask,
                                                const void* value, std::size_t num_bytes,
                                                SourceLine where) {
  const unsigned warp = current_ / 32;
  const unsigned bit = 1u << lane();
  if ((mask & bit) == 0) {
    fail(where, "calls %s with a mask, 0x%08x, that leaves out its own lane", intrinsic, mask);
  }
  WarpMeeting& meeting = meeting_of(warp, mask);
  if (meeting.arriving.lanes == 0) {
    meeting.intrinsic = intrinsic;
  } else if (std::strcmp(meeting.intrinsic, intrinsic) != 0) {
    fail(where, "calls %s while another lane of its warp waits in %s", intrinsic,
         meeting.intrinsic);
  }
  meeting.arriving.lanes |= bit;
  if (num_bytes > 0) std::memcpy(&meeting.arriving.values[lane()], value, num_bytes);
  if (is_complete(warp, meeting)) {
    release_meeting(warp, meeting);
  } else {
    stop(&meeting, where);
  }
  return meeting.met;
}

void BlockRunner::release_meeting(unsigned warp, WarpMeeting& meeting) {
  meeting.met = meeting.arriving;
  meeting.arriving.lanes = 0;
  const unsigned end = std::min(num_threads_, warp * 32 + 32);
  for (unsigned index = warp * 32; index < end; ++index) {
    Thread& thread = threads_[index];
    if (thread.waits && thread.meeting == &meeting) {
      thread.waits = false;
      ready_.push_back(index);
    }
  }
}

void BlockRunner::fail(SourceLine where, const char* format, ...) const {
  const uint3 thread = position(current_, grid_->block);
  std::fprintf(stderr, "emulated GPU: %s:%d: thread (%u, %u, %u) of block (%u, %u, %u) ",
               where.file, where.line, thread.x, thread.y, thread.z, blockIdx.x, blockIdx.y,
               blockIdx.z);
  va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  std::fputc('\n', stderr);
  std::abort();
}

void BlockRunner::fail_deadlock() const {
  unsigned first = 0;
  while (!threads_[first].waits) ++first;
  const Thread& thread = threads_[first];
  std::fprintf(
      stderr,
      "emulated GPU: deadlock in block (%u, %u, %u): %u of its %u threads have exited, and "
      "every other waits for one that will not come, as thread %u does in %s at %s:%d\n",
      blockIdx.x, blockIdx.y, blockIdx.z, num_exited_, num_threads_, first,
      thread.meeting ? thread.meeting->intrinsic : "__syncthreads", thread.where.file,
      thread.where.line);
  std::abort();
}

}  // namespace

void run_grid(const Grid& grid) {
  static std::atomic<unsigned> num_launches{0};
  const unsigned launch = num_launches.fetch_add(1, std::memory_order_relaxed);
  runner().run(grid, launch % 2 == 0 ? Order::forward : Order::reverse);
}

namespace device {

void wait_for_block(SourceLine where) {
  runner().wait_for_block(where);
}

const WarpValues& exchange_in_warp(const char* intrinsic, unsigned mask, const void* value,
                                   std::size_t num_bytes, SourceLine where) {
  return runner().exchange_in_warp(intrinsic, mask, value, num_bytes, where);
}

unsigned lane_index() {
  return runner().lane();
}

void fail_thread(SourceLine where, const char* message) {
  runner().fail(where, "%s", message);
}

}  // namespace device
}  // namespace emulated_gpu
