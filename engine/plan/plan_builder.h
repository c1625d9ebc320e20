// Collects the transfers of a plan while an algorithm goes through its steps.
#pragma once

#include <string>

#include "engine/plan/collective_plan.h"

namespace lockstep::plan {

class PlanBuilder {
 public:
  // Throws Error{Usage} when world_size < 1.
  PlanBuilder(std::string name, int world_size, std::size_t num_elements);

  void begin_step(std::string label);

  // Puts a transfer into the current step; an empty chunk is left out.
  // REQUIRES: begin_step was called.
  void copy(int from_rank, int to_rank, Chunk chunk);
  void add(int from_rank, int to_rank, Chunk chunk);

  // Appends another plan's steps. REQUIRES: the same world size and number of elements.
  void append(const CollectivePlan& part);

  // The plan, without steps that move nothing. The builder is used up.
  CollectivePlan finish();

 private:
  CollectivePlan plan_;
};

// Throws Error{Usage} unless 0 <= root < world_size.
void require_root(const std::string& operation, int world_size, int root);

}  // namespace lockstep::plan
