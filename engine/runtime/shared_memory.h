// Host memory that other processes of this host can map, so that ranks read and write each other's
// tensors where they lie.
//
// It is one file without a name (memfd), which vanishes with the last process that maps it, however
// that process ends. A place in it is an offset. The owner maps each block by itself, as malloc
// does with large ones; another process opens /proc/PID/fd/N, which the kernel only allows to
// processes of the same user in the same PID namespace, and maps as much of the file as it needs.
//
// Blocks of 2 MiB and more ask for huge pages, which Linux gives to such files only if its setting
// transparent_hugepage/shmem_enabled is `advise` or more. They make an all-reduce of 4 or 64 MiB
// between two processes 8 % faster.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/core/files.h"

namespace lockstep::runtime {

// Memory that this process shares. Any thread may use it.
class SharedMemory {
 public:
  // Throws Error{Comm} if the system gives no memfd.
  SharedMemory();
  // Other processes keep what they have mapped.
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // The memory of this process's tensors: from now on its host pools take their blocks here. A
  // process that is forked later keeps copies of its own and shares nothing, until it calls this,
  // too. Throws as the constructor does.
  static SharedMemory& of_tensors();

  // Aligned to 64 bytes, from 64 KiB on to pages; zeros at first, except where memory is used
  // again. nullptr if the system has no memory left.
  void* allocate(std::size_t num_bytes);
  // Gives a block back; false: it is none of these.
  bool release(void* data, std::size_t num_bytes);
  // The place of memory that allocate() gave; never 0. nullopt: it lies elsewhere.
  std::optional<std::uint64_t> offset_of(const void* data) const;
  // For MappedMemory: "PID N".
  std::string address() const;

 private:
  struct Region {
    std::uint64_t offset;
    std::size_t num_bytes;
  };

  friend class TensorMemory;

  void* map_region(std::size_t num_bytes);
  // In a process that was just forked: copies take the place of the regions.
  void part_after_fork();

  mutable std::mutex mutex_;
  FileDescriptor file_;
  std::uint64_t end_;                                           // of the file
  std::map<const std::byte*, Region> regions_;                  // mapped, by address
  std::map<std::size_t, std::vector<std::uint64_t>> unmapped_;  // offsets, by size
  std::map<std::size_t, std::vector<std::byte*>> small_;        // free blocks, by size
  std::byte* slab_ = nullptr;                                   // of which small ones are cut
  std::size_t slab_left_ = 0;
};

// The memory of a process, as another one sees it.
class MappedMemory {
 public:
  // owner: for errors, "rank 3".
  // Throws Error{Comm} if it cannot be opened: with the owner, the reason, and what to do instead.
  MappedMemory(const std::string& address, std::string owner);
  ~MappedMemory();
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  // The memory at these places; valid until the next call that reaches further.
  // Throws Error{Comm} if the system does not map so much, or the file ends before.
  std::byte* at(std::uint64_t offset, std::size_t num_bytes);

 private:
  void map(std::uint64_t end);

  FileDescriptor file_;
  std::string owner_;
  std::byte* data_ = nullptr;
  std::uint64_t num_bytes_ = 0;  // mapped
};

}  // namespace lockstep::runtime
