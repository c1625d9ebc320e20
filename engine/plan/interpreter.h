// Runs a collective plan on plain vectors, one rank after the other: the meaning of a plan in
// twenty lines. Tests check plans with it, tutorials show what each step does to the buffers.
#pragma once

#include <vector>

#include "engine/plan/collective_plan.h"

namespace lockstep::plan {

// buffers[rank][element]
using RankBuffers = std::vector<std::vector<double>>;

// Does one step: all reads see the buffers from before it.
// REQUIRES: the step is part of a valid plan for these buffers.
void interpret_step(const Step& step, RankBuffers& buffers);

// Does all steps of a plan.
// Throws Error{Usage} when the plan is not valid (require_valid), or when the buffers are not
// world_size vectors of num_elements.
void interpret(const CollectivePlan& plan, RankBuffers& buffers);

}  // namespace lockstep::plan
