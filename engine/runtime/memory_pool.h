// Memory of one logical device, kept for reuse.
//
// Freed blocks stay in the pool, so a training step that looks like the last one allocates nothing.
// The pool counts the bytes that tensors hold (current) and the most that they ever held (peak),
// per logical device, even if several share one physical device.
#pragma once

#include <cstddef>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/runtime/stream.h"

namespace lockstep::runtime {

struct MemoryStatistics {
  std::size_t current_bytes = 0;           // held by live blocks, and by pools counted in this one
  std::size_t peak_bytes = 0;              // the most of current_bytes since the last reset_peak()
  std::size_t cached_bytes = 0;            // free, kept for reuse
  std::size_t num_allocations = 0;         // blocks given out
  std::size_t num_system_allocations = 0;  // blocks among these that the pool could not serve
};

// The size of the block that a pool gives out for so many bytes: multiples of 64 up to 512 bytes,
// then eight sizes between one power of two and the next, so that at most 1/8 of it is unused.
std::size_t block_size(std::size_t num_bytes);

class MemoryPool {
 public:
  struct Block {
    void* data = nullptr;
    std::size_t num_bytes = 0;  // the block's; at least the requested size
  };

  // counted_in: a pool that outlives this one and whose current and peak bytes include this one's;
  // or nullptr.
  explicit MemoryPool(MemoryPool* counted_in = nullptr) : counted_in_(counted_in) {}
  virtual ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // At least num_bytes, aligned to 64 bytes, uninitialised.
  // Throws Error{Device} if there is no memory, or not within set_limit(); it names requested, free
  // and peak bytes and the device. Nothing is lost.
  Block allocate(std::size_t num_bytes);

  // Gives a block back. It is given out again only when all of `uses` have passed.
  void release(Block block, std::vector<std::shared_ptr<Event>> uses = {});

  MemoryStatistics statistics() const;
  // Sets the peak to the bytes in use now, or to at_least if that is more.
  void reset_peak(std::size_t at_least = 0);

  // From now on live blocks hold at most so many bytes: an allocation beyond them is out of memory,
  // as on a device that has no more. It makes a virtual device as small as an experiment needs.
  void set_limit(std::size_t num_bytes);

  // Returns free blocks to the system.
  void release_cached();
  // Bytes that the system could still give, for messages.
  virtual std::size_t free_bytes() const = 0;

  // From now on every block stays, even if memory runs out, and free blocks count as held. It is
  // for a captured graph, whose launches use blocks that no tensor owns any more.
  void keep_blocks();
  // Ends keep_blocks().
  void let_blocks_go();

 protected:
  // For pools of devices that share physical memory: gives the other pools' free blocks back to the
  // system. Called without the pool's lock, if the system has no memory left.
  virtual void release_others() {}
  // nullptr if the system has no memory left.
  virtual void* system_allocate(std::size_t num_bytes) = 0;
  virtual void system_release(void* data, std::size_t num_bytes) = 0;
  virtual std::string description() const = 0;

 private:
  struct Pending {
    Block block;
    std::vector<std::shared_ptr<Event>> uses;
  };

  // REQUIRES: mutex_ is held.
  void reclaim_passed();
  void release_cached_locked();
  // A free block or one of the system's; nullptr: there is none, or the limit is reached.
  void* find_block(std::size_t size, std::unique_lock<std::mutex>& lock);
  void update_counted_in();  // after every change of the held bytes

  mutable std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> free_;  // keyed by block size
  std::vector<Pending> pending_;
  MemoryStatistics statistics_;
  std::size_t limit_ = std::numeric_limits<std::size_t>::max();  // the most current_bytes
  bool keeps_blocks_ = false;
  MemoryPool* const counted_in_;       // its mutex is taken after this one's
  std::size_t num_bytes_counted_ = 0;  // this pool's share of counted_in_'s current bytes
};

// Another source of host memory (shared_memory.h).
class HostBlocks {
 public:
  virtual ~HostBlocks() = default;
  // Aligned to 64 bytes; nullptr: it has none left, or gives none any more.
  virtual void* allocate(std::size_t num_bytes) = 0;
  // False if the block is not one of its own.
  virtual bool release(void* data, std::size_t num_bytes) = 0;
};

// From now on the host pools of this process ask it first, and give their blocks back to it.
// REQUIRES: it lives until the process ends.
void take_host_blocks_from(HostBlocks& blocks);

// Host memory; blocks of 2 MiB and more ask for huge pages.
std::unique_ptr<MemoryPool> make_host_memory_pool(std::string description);

}  // namespace lockstep::runtime
