#include "engine/runtime/memory_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <string>

#include "engine/core/error.h"

namespace lockstep::runtime {

std::size_t block_size(std::size_t num_bytes) {
  if (num_bytes > std::size_t{1} << 60)
    return num_bytes;  // rounding up would overflow; no system has that much
  const std::size_t rounded = std::max<std::size_t>(num_bytes, 1);
  const std::size_t granule =
      rounded <= 512 ? 64 : std::max<std::size_t>(64, std::bit_floor(rounded - 1) / 8);
  return (rounded + granule - 1) / granule * granule;
}

MemoryPool::~MemoryPool() = default;

void* MemoryPool::find_block(std::size_t size, std::unique_lock<std::mutex>& lock) {
  if (size > limit_ || statistics_.current_bytes > limit_ - size) return nullptr;
  if (const auto bin = free_.find(size); bin != free_.end() && !bin->second.empty()) {
    void* data = bin->second.back();
    bin->second.pop_back();
    statistics_.cached_bytes -= size;
    return data;
  }
  void* data = system_allocate(size);
  if (!data) {
    release_cached_locked();
    lock.unlock();
    release_others();
    lock.lock();
    data = system_allocate(size);
  }
  if (data) ++statistics_.num_system_allocations;
  return data;
}

MemoryPool::Block MemoryPool::allocate(std::size_t num_bytes) {
  const std::size_t size = block_size(num_bytes);
  std::unique_lock lock(mutex_);
  if (!pending_.empty()) reclaim_passed();
  void* data = find_block(size, lock);
  if (!data) {
    const MemoryStatistics held = counted_in_ != nullptr ? counted_in_->statistics() : statistics_;
    const std::size_t left = limit_ - std::min(limit_, statistics_.current_bytes);
    fail(ErrorCode::Device, "allocate",
         "out of memory on {}: asked for {} bytes, {} are free, tensors hold {} (peak {}); "
         "use a smaller batch or model",
         description(), num_bytes, std::min(left, free_bytes()), held.current_bytes,
         held.peak_bytes);
  }
  ++statistics_.num_allocations;
  statistics_.current_bytes += size;
  statistics_.peak_bytes = std::max(statistics_.peak_bytes, statistics_.current_bytes);
  update_counted_in();
  return {data, size};
}

void MemoryPool::release(Block block, std::vector<std::shared_ptr<Event>> uses) {
  std::lock_guard lock(mutex_);
  statistics_.current_bytes -= block.num_bytes;
  statistics_.cached_bytes += block.num_bytes;
  update_counted_in();
  std::erase_if(uses, [](const auto& event) { return event->has_passed(); });
  if (uses.empty()) {
    free_[block.num_bytes].push_back(block.data);
  } else {
    pending_.push_back({block, std::move(uses)});
  }
}

void MemoryPool::reclaim_passed() {
  std::erase_if(pending_, [this](Pending& pending) {
    std::erase_if(pending.uses, [](const auto& event) { return event->has_passed(); });
    if (!pending.uses.empty()) return false;
    free_[pending.block.num_bytes].push_back(pending.block.data);
    return true;
  });
}

MemoryStatistics MemoryPool::statistics() const {
  std::lock_guard lock(mutex_);
  return statistics_;
}

void MemoryPool::reset_peak(std::size_t at_least) {
  std::lock_guard lock(mutex_);
  statistics_.peak_bytes = std::max(statistics_.current_bytes, at_least);
}

void MemoryPool::set_limit(std::size_t num_bytes) {
  std::lock_guard lock(mutex_);
  limit_ = num_bytes;
}

void MemoryPool::release_cached() {
  std::lock_guard lock(mutex_);
  release_cached_locked();
}

void MemoryPool::keep_blocks() {
  std::lock_guard lock(mutex_);
  keeps_blocks_ = true;
  update_counted_in();
}

void MemoryPool::let_blocks_go() {
  std::lock_guard lock(mutex_);
  keeps_blocks_ = false;
  update_counted_in();
}

void MemoryPool::update_counted_in() {
  if (counted_in_ == nullptr) return;
  const std::size_t num_held =
      statistics_.current_bytes + (keeps_blocks_ ? statistics_.cached_bytes : 0);
  if (num_held == num_bytes_counted_) return;
  std::lock_guard lock(counted_in_->mutex_);
  MemoryStatistics& all = counted_in_->statistics_;
  all.current_bytes = all.current_bytes - num_bytes_counted_ + num_held;
  all.peak_bytes = std::max(all.peak_bytes, all.current_bytes);
  num_bytes_counted_ = num_held;
}

void MemoryPool::release_cached_locked() {
  if (keeps_blocks_) return;
  reclaim_passed();
  for (auto& [size, blocks] : free_) {
    for (void* data : blocks) system_release(data, size);
    statistics_.cached_bytes -= size * blocks.size();
    blocks.clear();
  }
}

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Bytes of the machine's memory. Linux promises more than it has and kills the process that then
// uses it, so an impossible request is refused at once.
std::size_t physical_memory() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
                            static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

std::atomic<HostBlocks*> host_blocks{nullptr};

class HostMemoryPool final : public MemoryPool {
 public:
  explicit HostMemoryPool(std::string description) : description_(std::move(description)) {}
  ~HostMemoryPool() override { release_cached(); }

 protected:
  void* system_allocate(std::size_t num_bytes) override {
    if (num_bytes > physical_memory()) return nullptr;
    if (HostBlocks* const blocks = host_blocks.load(std::memory_order_acquire)) {
      if (void* const data = blocks->allocate(num_bytes)) return data;
    }
    if (num_bytes < kHugePage) return std::aligned_alloc(64, num_bytes);
    const std::size_t rounded = (num_bytes + kHugePage - 1) / kHugePage * kHugePage;
    void* data = std::aligned_alloc(kHugePage, rounded);
    if (data) madvise(data, rounded, MADV_HUGEPAGE);  // only advice: a refusal changes nothing
    return data;
  }
  void system_release(void* data, std::size_t num_bytes) override {
    HostBlocks* const blocks = host_blocks.load(std::memory_order_acquire);
    if (blocks == nullptr || !blocks->release(data, num_bytes)) std::free(data);
  }
  std::string description() const override { return description_; }
  std::size_t free_bytes() const override {
    return static_cast<std::size_t>(sysconf(_SC_AVPHYS_PAGES)) *
           static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  }

 private:
  std::string description_;
};

}  // namespace

void take_host_blocks_from(HostBlocks& blocks) {
  host_blocks.store(&blocks, std::memory_order_release);
}

std::unique_ptr<MemoryPool> make_host_memory_pool(std::string description) {
  return std::make_unique<HostMemoryPool>(std::move(description));
}

}  // namespace lockstep::runtime
