// The seam to the kernels that reduce memory of several CUDA devices. Here without CUDA's headers;
// a build without CUDA links no_cuda_peer.cpp in place of this folder.
#pragma once

#include <cstddef>
#include <span>

#include "engine/comm/communicator.h"

namespace lockstep::comm::cuda_peer {

inline constexpr std::size_t kMaxRanks = 64;

// Every output = sources[0] op sources[1] op ..., in one launch: each element is read once from
// every source and written once to every output. Order, factor and bits are those of
// reduce_in_order (engine/comm/reduce.h).
// Memory:  the stream's GPU reads and writes all of it, so it is its own, or that of a GPU to which
//          it has peer access (runtime::has_peer_access). An output may be one of the sources.
// Types:   float32, float64, int32, int64 (factor 1), and bfloat16, float16, which are added up in
//          float32 and rounded once.
// REQUIRES: 1 to kMaxRanks sources and outputs, all with the same dtype and number of elements.
void reduce_to_all(runtime::Stream& stream, ReduceOp op, double factor,
                   std::span<const ConstTensorView> sources, std::span<const TensorView> outputs);

}  // namespace lockstep::comm::cuda_peer
