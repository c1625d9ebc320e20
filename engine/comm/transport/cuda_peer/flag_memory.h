// The memory through which the kernels of a flag all-reduce meet: one FlagMemory on every rank's
// GPU, read and written by all of them.
#pragma once

#include <cstddef>

namespace lockstep::comm::cuda_peer {

inline constexpr std::size_t kMaxFlagRanks = 16;
inline constexpr unsigned kMaxFlagBlocks = 32;
inline constexpr unsigned kFlagThreads = 512;           // of a block
inline constexpr std::size_t kStagedBytes = 16 * 1024;  // that a block hands over at once

// Counts the barriers that a block took part in. 64 bits never come round.
using Epoch = unsigned long long;

// Of a block that waited for a peer in vain. It compares as later than every barrier, so nobody
// waits for the block again.
inline constexpr Epoch kGaveUp = ~Epoch{0};

// Zero at the beginning. Kernels alone change it, so a launch that a graph repeats goes on where
// the last one ended.
struct FlagMemory {
  // One cache line for each block: the epoch that block b of every rank has come to. A rank's word
  // is written by that rank only.
  struct alignas(128) Line {
    Epoch reached_by[kMaxFlagRanks];
  };
  Line flags[kMaxFlagBlocks];
  // Where the owner's own blocks are between two launches.
  alignas(128) Epoch epochs[kMaxFlagBlocks];
  // Gives out the numbers of blocks; 0 between two launches.
  alignas(128) unsigned next_block;
  // What block b of the owner shows the others, in turn: see one_shot in flag_kernels.cu.
  alignas(128) std::byte staging[2][kMaxFlagBlocks][kStagedBytes];
};

}  // namespace lockstep::comm::cuda_peer
