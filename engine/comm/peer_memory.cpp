#include "engine/comm/peer_memory.h"

#include <cstring>
#include <mutex>
#include <utility>

#include "engine/core/error.h"

namespace lockstep::comm {

using Block = runtime::MemoryPool::Block;

namespace {

// Zeros for all ranks of a group of threads, and their messages.
struct ThreadState {
  explicit ThreadState(std::size_t num_bytes) : zeros(pool->allocate(num_bytes)) {
    std::memset(zeros.data, 0, num_bytes);
  }
  ~ThreadState() {
    for (const Block& block : kept) pool->release(block);
    pool->release(zeros);
  }
  ThreadState(const ThreadState&) = delete;
  ThreadState& operator=(const ThreadState&) = delete;

  std::unique_ptr<runtime::MemoryPool> pool = runtime::make_host_memory_pool("the host");
  Block zeros;
  std::mutex mutex;
  std::vector<Block> kept;
};

class ThreadMemory final : public PeerMemory {
 public:
  explicit ThreadMemory(std::shared_ptr<ThreadState> state) : state_(std::move(state)) {}

  runtime::MemoryPool& pool() override { return *state_->pool; }
  void keep(const Block& block) noexcept override {
    const std::lock_guard lock(state_->mutex);
    state_->kept.push_back(block);
  }
  Address address_of(const void* data) const override {
    return reinterpret_cast<std::uintptr_t>(data);
  }
  std::byte* at(int, Address address, std::size_t) override {
    return reinterpret_cast<std::byte*>(address);
  }
  bool is_alive(int) const override { return true; }
  int process_of(int) const override { return 0; }

 private:
  std::shared_ptr<ThreadState> state_;
};

}  // namespace

Block PeerMemory::allocate(std::size_t num_bytes) {
  const Block block = pool().allocate(num_bytes);
  if (address_of(block.data) != 0) return block;
  pool().release(block);
  fail(ErrorCode::Device, "collective",
       "no shared memory left for {} bytes; raise the limit of the address space (ulimit -v) or "
       "use TCP",
       num_bytes);
}

std::vector<SharedState> share_between_threads(int world_size, std::size_t num_bytes) {
  const auto state = std::make_shared<ThreadState>(num_bytes);
  std::vector<SharedState> states(static_cast<std::size_t>(world_size));
  for (SharedState& rank : states) {
    rank = {std::make_unique<ThreadMemory>(state),
            {state, static_cast<std::byte*>(state->zeros.data)}};
  }
  return states;
}

}  // namespace lockstep::comm
