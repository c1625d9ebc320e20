#include "engine/comm/peer_memory.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include "engine/core/error.h"

namespace lockstep::comm {

std::byte* require_memory(void* data, std::size_t num_bytes) {
  require(data != nullptr, ErrorCode::Device, "collective", "no memory left for {} bytes",
          num_bytes);
  return static_cast<std::byte*>(data);
}

namespace {

constexpr std::size_t kPage = 4096;

// Zeros for all ranks of a group of threads, and what they left behind.
struct ThreadState {
  explicit ThreadState(std::size_t num_bytes)
      : zeros(require_memory(std::aligned_alloc(kPage, num_bytes), num_bytes)) {
    std::memset(zeros, 0, num_bytes);
  }
  ~ThreadState() {
    for (std::byte* block : left) std::free(block);
    std::free(zeros);
  }
  ThreadState(const ThreadState&) = delete;
  ThreadState& operator=(const ThreadState&) = delete;

  std::byte* zeros;
  std::mutex mutex;
  std::vector<std::byte*> left;
};

class ThreadMemory final : public PeerMemory {
 public:
  explicit ThreadMemory(std::shared_ptr<ThreadState> state) : state_(std::move(state)) {}

  std::byte* allocate(std::size_t num_bytes) override {
    const std::size_t whole = (num_bytes + 63) / 64 * 64;
    return require_memory(std::aligned_alloc(64, whole), num_bytes);
  }
  void release(std::byte* data, std::size_t) noexcept override { std::free(data); }
  void leave(std::byte* data, std::size_t) noexcept override {
    const std::lock_guard lock(state_->mutex);
    state_->left.push_back(data);
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

std::vector<SharedState> share_between_threads(int world_size, std::size_t num_bytes) {
  const auto state = std::make_shared<ThreadState>((num_bytes + kPage - 1) / kPage * kPage);
  std::vector<SharedState> states(static_cast<std::size_t>(world_size));
  for (SharedState& rank : states) {
    rank = {std::make_unique<ThreadMemory>(state), std::shared_ptr<std::byte>(state, state->zeros)};
  }
  return states;
}

}  // namespace lockstep::comm
