// Lab 07: the ring all-reduce as a plan. README.md says what is to be done.
#pragma once

#include <cstddef>

#include "engine/plan/collective_plan.h"

namespace lab {

// A plan after which every rank holds the sum of all ranks' buffers. In each step every rank sends
// one part (plan::even_chunk) of the buffer to rank + 1, around the ring: first n - 1 steps in
// which the receiver adds (Combine::add), then n - 1 in which it overwrites (Combine::copy). n =
// world_size. Empty parts are left out, and so are steps without transfers.
lockstep::plan::CollectivePlan ring_plan(int world_size, std::size_t num_elements);

}  // namespace lab
