// Runs the programs of all ranks from one thread: copies and sums go to the streams of the ranks,
// which meet at events. The thread waits for nothing, so the work may be captured into a CUDA
// graph.
#pragma once

#include <functional>
#include <span>

#include "engine/comm/communicator.h"
#include "engine/comm/grouped/rank_program.h"

namespace lockstep::comm {

// A rank as the enqueueing thread sees it.
struct GroupRank {
  runtime::Stream& stream;
  TensorView buffer;
};

// Enqueues the programs of all ranks of one plan. Their buffers are equally long. The work follows
// what each stream holds, and comes before everything that it is given later: nobody touches a
// rank's memory then.
// staging(rank, num_bytes): memory on the rank's device that no stream but ranks[rank]'s uses.
void enqueue_programs(
    std::span<const RankProgram> programs, std::span<const GroupRank> ranks, ReduceOp op,
    const std::function<std::byte*(std::size_t rank, std::size_t num_bytes)>& staging);

// Whether kernels of one device read and write another one's memory. REQUIRES: both are of one
// type.
bool reaches(const runtime::LogicalDevice& reader, const runtime::LogicalDevice& owner);

// Enqueues outputs = sources[0] op sources[1] op ... on a stream whose device reaches all of them.
// See cuda_peer::reduce_to_all.
void reduce_on_stream(runtime::Stream& stream, ReduceOp op, double factor,
                      std::span<const ConstTensorView> sources,
                      std::span<const TensorView> outputs);

// Enqueues a copy on a stream; either side is memory of any device of the stream's type.
void copy_on_stream(runtime::Stream& stream, ConstTensorView from, TensorView to);

}  // namespace lockstep::comm
