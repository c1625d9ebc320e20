// Lab 07: the ring all-reduce as a plan. README.md says what is to be done.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/plan/collective_plan.h"

namespace lab {

// The two halves of ring_plan(). In each step of both every rank sends one part
// (plan::even_chunk) to rank + 1, around the ring.
// Before the first: every rank has its own values. After n - 1 steps of Combine::add part r is
// complete on rank r. After n - 1 more of Combine::copy every rank has all of them. n = world_size.
std::vector<lockstep::plan::Step> reduce_scatter_steps(int world_size, std::size_t num_elements);
std::vector<lockstep::plan::Step> all_gather_steps(int world_size, std::size_t num_elements);

// A plan after which every rank holds the sum of all ranks' buffers: both halves, one after the
// other. Empty parts are left out, and so are steps without transfers.
lockstep::plan::CollectivePlan ring_plan(int world_size, std::size_t num_elements);

}  // namespace lab
