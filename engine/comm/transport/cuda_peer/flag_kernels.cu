// One-shot: every rank copies its values where the others see them, meets them, and adds all up for
// itself. Two-shot: every rank meets the others, adds up its own part from all buffers, writes the
// sums into all buffers, and meets the others again.
//
// Values are combined in the order of ranks, as in reduce_to_all.cu: every rank has its bits.
#include "engine/comm/transport/cuda_peer/flag_kernels.h"

#include <algorithm>
#include <set>
#include <utility>

#include "engine/comm/transport/cuda_peer/arithmetic.cuh"
#include "engine/comm/transport/cuda_peer/flag_barrier.cuh"
#include "engine/plan/collective_plan.h"
#include "engine/runtime/cuda/check.h"
#include "engine/runtime/cuda/device_wide_calls.h"
#include "engine/runtime/physical_gpus.h"
#include "kernels/cuda/launch.h"

namespace lockstep::comm::cuda_peer {
namespace {

using runtime::cuda::cuda_stream;

// --- one-shot: a block's piece of the buffer goes through the block's own staging memory

template <typename T>
__device__ T* staging_of(FlagMemory& memory, Epoch epoch, unsigned block) {
  return reinterpret_cast<T*>(memory.staging[epoch % 2][block]);
}

// Staging memory is always aligned, the buffer may not be; behind its end staging holds zeros.
template <typename T>
__device__ void stage(const T* from, std::size_t num_elements, T* staged) {
  constexpr std::size_t kElements = on_gpu::kWidth<T>;
  const bool aligned = on_gpu::is_aligned(from);
  for (std::size_t i = threadIdx.x * kElements; i < num_elements; i += kFlagThreads * kElements) {
    on_gpu::Vector<T, kElements> values{};
    if (aligned && i + kElements <= num_elements) {
      values = on_gpu::load_vector<kElements>(from + i);
    } else {
#pragma unroll
      for (std::size_t k = 0; k < kElements; ++k) {
        if (i + k < num_elements) values.at[k] = from[i + k];
      }
    }
    on_gpu::store_vector(staged + i, values);
  }
}

template <typename T, typename Op>
__device__ void combine_staged(const FlagPeers& peers, Epoch epoch, unsigned block, T* to,
                               std::size_t num_elements, Arithmetic<T> factor, Op op) {
  constexpr std::size_t kElements = on_gpu::kWidth<T>;
  const bool aligned = on_gpu::is_aligned(to);
  for (std::size_t i = threadIdx.x * kElements; i < num_elements; i += kFlagThreads * kElements) {
    Arithmetic<T> total[kElements] = {};
#pragma unroll 4
    for (int rank = 0; rank < peers.num_ranks; ++rank) {
      const T* const staged = staging_of<T>(*peers.memory[rank], epoch, block);
      combine<T>(total, on_gpu::load_vector<kElements>(staged + i),
                 rank == 0 ? Place::first : Place::later, factor, op);
    }
    const auto result = rounded<T>(total);
    if (aligned && i + kElements <= num_elements) {
      on_gpu::store_vector(to + i, result);
    } else {
#pragma unroll
      for (std::size_t k = 0; k < kElements; ++k) {
        if (i + k < num_elements) to[i + k] = result.at[k];
      }
    }
  }
}

// One barrier per piece is enough, because a block has two stages and takes them in turn: when it
// overwrites one, it has met the others since they were told of it, and a block comes to a barrier
// only after it has read what was shown in the one before.
template <typename T, typename Op>
__global__ void __launch_bounds__(kFlagThreads, 1)
    one_shot_kernel(const __grid_constant__ FlagPeers peers, std::size_t num_elements,
                    std::size_t piece_elements, Arithmetic<T> factor, Op op) {
  const unsigned block = take_block_number(peers);
  Epoch epoch = last_epoch(peers, block);
  if (epoch == kGaveUp) return;
  T* const buffer = static_cast<T*>(peers.buffers[peers.rank]);
  for (std::size_t begin = block * piece_elements; begin < num_elements;
       begin += gridDim.x * piece_elements) {
    const std::size_t left = num_elements - begin;
    const std::size_t count = left < piece_elements ? left : piece_elements;
    ++epoch;
    stage(buffer + begin, count, staging_of<T>(peers.mine(), epoch, block));
    if (!meet(peers, block, epoch)) return;
    combine_staged(peers, epoch, block, buffer + begin, count, factor, op);
  }
  if (threadIdx.x == 0) peers.mine().epochs[block] = epoch;
}

// --- two-shot

// What a rank adds up: elements begin ... end - 1, of which those before in_vectors lie in whole
// vectors of every rank's memory.
struct OwnPart {
  std::size_t begin;
  std::size_t in_vectors;
  std::size_t end;
};

// kVectors pieces of kElements elements at a time by each thread, so that enough reads are on their
// way to the other GPUs.
template <std::size_t kElements, int kVectors, typename T, typename Op>
__device__ void combine_range(const FlagPeers& peers, unsigned block, std::size_t begin,
                              std::size_t end, Arithmetic<T> factor, Op op) {
  const std::size_t stride = std::size_t{gridDim.x} * kFlagThreads * kElements;
  const std::size_t first = begin + (std::size_t{block} * kFlagThreads + threadIdx.x) * kElements;
  for (std::size_t i = first; i < end; i += stride * kVectors) {
    Arithmetic<T> total[kVectors][kElements] = {};
#pragma unroll 2
    for (int rank = 0; rank < peers.num_ranks; ++rank) {
      const T* const from = static_cast<const T*>(peers.buffers[rank]);
      on_gpu::Vector<T, kElements> values[kVectors] = {};
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const std::size_t at = i + v * stride;
        if (at < end) values[v] = on_gpu::load_vector<kElements>(from + at);
      }
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        combine<T>(total[v], values[v], rank == 0 ? Place::first : Place::later, factor, op);
      }
    }
    // Every rank begins with another one, so that not all write to the same GPU.
    for (int step = 0; step < peers.num_ranks; ++step) {
      const int sum = peers.rank + step;
      T* const to =
          static_cast<T*>(peers.buffers[sum < peers.num_ranks ? sum : sum - peers.num_ranks]);
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const std::size_t at = i + v * stride;
        if (at < end) on_gpu::store_vector(to + at, rounded<T>(total[v]));
      }
    }
  }
}

// Before the first barrier a peer's earlier work may still write its buffer; before the second one
// peers still read this rank's buffer and write their sums into it.
template <typename T, typename Op>
__global__ void __launch_bounds__(kFlagThreads, 1)
    two_shot_kernel(const __grid_constant__ FlagPeers peers, OwnPart own, Arithmetic<T> factor,
                    Op op) {
  const unsigned block = take_block_number(peers);
  const Epoch epoch = last_epoch(peers, block);
  if (epoch == kGaveUp) return;
  if (!meet(peers, block, epoch + 1)) return;
  combine_range<on_gpu::kWidth<T>, 2, T>(peers, block, own.begin, own.in_vectors, factor, op);
  combine_range<1, 1, T>(peers, block, own.in_vectors, own.end, factor, op);
  if (!meet(peers, block, epoch + 2)) return;
  if (threadIdx.x == 0) peers.mine().epochs[block] = epoch + 2;
}

// --- launching

// Brings a kernel onto all GPUs before any rank's is launched: CUDA loads kernels when they are
// first used, and may wait for what runs then. REQUIRES: the calling thread holds device-wide
// calls.
template <typename... Parameters>
void load_kernel(void (*kernel)(Parameters...), std::span<const FlagRank> ranks) {
  static std::set<std::pair<const void*, int>> loaded;
  const auto* const handle = reinterpret_cast<const void*>(kernel);
  for (const FlagRank& rank : ranks) {
    const int gpu = cuda_stream(*rank.stream).gpu();
    if (!loaded.insert({handle, gpu}).second) continue;
    const runtime::cuda::CurrentGpu current(gpu);
    int num_blocks = 0;
    CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&num_blocks, handle, kFlagThreads, 0));
  }
}

// Of each rank: half of the smallest GPU's multiprocessors, that kernels beside a waiting one find
// room, divided among the ranks that share it, that none waits for one which finds none.
unsigned max_blocks(std::span<const FlagRank> ranks) {
  unsigned blocks = kMaxFlagBlocks;
  for (const FlagRank& rank : ranks) {
    const int gpu = cuda_stream(*rank.stream).gpu();
    const auto num_sharing = std::ranges::count_if(
        ranks, [&](const FlagRank& other) { return cuda_stream(*other.stream).gpu() == gpu; });
    const int half =
        runtime::physical_gpus()[static_cast<std::size_t>(gpu)].num_multiprocessors / 2;
    blocks =
        std::min(blocks, static_cast<unsigned>(std::max(half / static_cast<int>(num_sharing), 1)));
  }
  return blocks;
}

FlagPeers peers_of(std::span<const FlagRank> ranks, std::size_t rank, double patience_seconds) {
  FlagPeers peers{};
  peers.num_ranks = static_cast<int>(ranks.size());
  peers.rank = static_cast<int>(rank);
  peers.patience_ns = static_cast<unsigned long long>(patience_seconds * 1e9);
  peers.fault = cuda_stream(*ranks[rank].stream).fault();
  for (std::size_t peer = 0; peer < ranks.size(); ++peer) {
    peers.memory[peer] = ranks[peer].memory;
    peers.buffers[peer] = ranks[peer].buffer.data;
  }
  return peers;
}

// A block takes what its threads load at once, until there are blocks enough.
unsigned num_blocks(std::span<const FlagRank> ranks, std::size_t num_bytes) {
  constexpr std::size_t kBytes = kFlagThreads * 16;
  return static_cast<unsigned>(
      std::min<std::size_t>((num_bytes + kBytes - 1) / kBytes, max_blocks(ranks)));
}

template <typename T, typename Op>
void launch_one_shot(std::span<const FlagRank> ranks, double factor, double patience_seconds,
                     Op op) {
  const std::size_t num_elements = ranks[0].buffer.num_elements;
  const unsigned blocks = num_blocks(ranks, num_elements * sizeof(T));
  const std::size_t even = (num_elements + blocks - 1) / blocks;
  const std::size_t whole_vectors = (even + on_gpu::kWidth<T> - 1) / on_gpu::kWidth<T>;
  const std::size_t piece = std::min(whole_vectors * on_gpu::kWidth<T>, kStagedBytes / sizeof(T));
  load_kernel(one_shot_kernel<T, Op>, ranks);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    on_gpu::launch(*ranks[rank].stream, "all_reduce", {dim3(blocks), dim3(kFlagThreads)},
                   one_shot_kernel<T, Op>, peers_of(ranks, rank, patience_seconds), num_elements,
                   piece, static_cast<Arithmetic<T>>(factor), op);
  }
}

template <typename T, typename Op>
void launch_two_shot(std::span<const FlagRank> ranks, double factor, double patience_seconds,
                     Op op) {
  const std::size_t num_elements = ranks[0].buffer.num_elements;
  const bool aligned = std::ranges::all_of(
      ranks, [](const FlagRank& rank) { return on_gpu::is_aligned(rank.buffer.data); });
  const std::size_t num_vectors = (num_elements + on_gpu::kWidth<T> - 1) / on_gpu::kWidth<T>;
  const std::size_t largest_part = (num_vectors + ranks.size() - 1) / ranks.size();
  const unsigned blocks = num_blocks(ranks, largest_part * 16);
  load_kernel(two_shot_kernel<T, Op>, ranks);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const plan::Chunk vectors = plan::even_chunk(num_vectors, ranks.size(), rank);
    OwnPart own{};
    own.begin = std::min(vectors.offset * on_gpu::kWidth<T>, num_elements);
    own.end = std::min(vectors.end() * on_gpu::kWidth<T>, num_elements);
    const std::size_t in_vectors = (own.end - own.begin) / on_gpu::kWidth<T> * on_gpu::kWidth<T>;
    own.in_vectors = own.begin + (aligned ? in_vectors : 0);
    on_gpu::launch(*ranks[rank].stream, "all_reduce", {dim3(blocks), dim3(kFlagThreads)},
                   two_shot_kernel<T, Op>, peers_of(ranks, rank, patience_seconds), own,
                   static_cast<Arithmetic<T>>(factor), op);
  }
}

}  // namespace

void launch_flag_kernels(plan::AllReducePlan plan, ReduceOp op, double factor,
                         std::span<const FlagRank> ranks, double patience_seconds) {
  // Neither loading a kernel nor anybody's cudaMalloc comes between two ranks' launches.
  const auto alone = runtime::cuda::hold_device_wide_calls();
  for_reduction("all_reduce", ranks[0].buffer.dtype, op, [&]<typename T>(auto functor) {
    if (plan == plan::AllReducePlan::one_shot) {
      launch_one_shot<T>(ranks, factor, patience_seconds, functor);
    } else {
      launch_two_shot<T>(ranks, factor, patience_seconds, functor);
    }
  });
}

}  // namespace lockstep::comm::cuda_peer
