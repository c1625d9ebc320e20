// One-shot: every rank reads everybody's whole buffer and adds it all up by itself.
//
// One step, so the lowest latency; but n-1 times the buffer per rank, so only for small buffers.
// Every rank adds in the order of ranks, so all get the same bits. Each buffer is read while its
// owner writes the result, so what is read is a copy made before.
//
// Source: the one-shot custom all-reduce of TensorRT-LLM and vLLM. n = world_size below.
#pragma once

#include "engine/plan/collective_plan.h"

namespace lockstep::plan {

// Cost: 1 step; each rank sends (n-1) times the buffer.
CollectivePlan one_shot_all_reduce(int world_size, std::size_t num_elements);

}  // namespace lockstep::plan
