// How the ranks of one host reach each other's memory. Ranks that are threads use pointers as they
// are. Ranks that are processes map each other's shared memory (shm_group.cpp), and an address is
// an offset in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/runtime/memory_pool.h"

namespace lockstep::comm {

// A place in a rank's memory, as its peers know it; 0: none.
using Address = std::uint64_t;

// One rank's view.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;

  virtual runtime::MemoryPool& pool() = 0;
  // A block of the pool that peers can reach, aligned to 64 bytes.
  // Throws Error{Device} if there is no memory.
  runtime::MemoryPool::Block allocate(std::size_t num_bytes);
  // Takes a block that peers may still read: it stays as long as they can.
  virtual void keep(const runtime::MemoryPool::Block& block) noexcept = 0;
  // 0 if peers cannot reach this memory.
  virtual Address address_of(const void* data) const = 0;
  // A peer's memory, or this rank's own. Throws Error{Comm} if it cannot be mapped.
  virtual std::byte* at(int peer, Address address, std::size_t num_bytes) = 0;
  // False if the peer's process has ended.
  virtual bool is_alive(int peer) const = 0;
  // 0: in a group of threads.
  virtual int process_of(int peer) const = 0;
};

// The ranks' memory, and zeros that all of them use together.
struct SharedState {
  std::unique_ptr<PeerMemory> memory;
  std::shared_ptr<std::byte> data;  // aligned to a page
};

// One for every rank of a group of threads.
std::vector<SharedState> share_between_threads(int world_size, std::size_t num_bytes);

}  // namespace lockstep::comm
