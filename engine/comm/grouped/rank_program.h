// What one rank does to carry out a plan: the plan's steps seen from this rank, with everything
// that can be worked out beforehand, so that running it decides nothing. A rank runs its own over a
// transport (plan_executor.h); one thread runs those of all ranks on streams (group_executor.h).
#pragma once

#include <vector>

#include "engine/plan/collective_plan.h"

namespace lockstep::comm {

// Elements that a staged chunk takes up: each begins aligned.
inline std::size_t staging_room(std::size_t num_elements) {
  return (num_elements + 15) / 16 * 16;
}

// A chunk that a step both sends and overwrites here: it is copied to the staging memory first, and
// sent from there.
struct StagedChunk {
  plan::Chunk chunk;
  std::size_t staging_offset = 0;  // in elements

  bool operator==(const StagedChunk&) const = default;
};

struct ProgramSend {
  int to_rank = 0;
  plan::Chunk chunk;
  enum class From { buffer, staging } from = From::buffer;
  std::size_t staging_offset = 0;  // of From::staging
  std::size_t number = 0;          // counted through all steps
};

struct ProgramWrite {
  plan::Write write;
  // Sends of earlier steps, by number, whose memory this write overwrites: they must have arrived.
  std::vector<std::size_t> sends_before;
};

struct ProgramStep {
  std::vector<StagedChunk> staged;
  std::vector<ProgramSend> sends;    // by rising offset: so a pair of ranks agrees on the order
  std::vector<ProgramWrite> writes;  // by rising offset
};

struct RankProgram {
  std::vector<ProgramStep> steps;  // those of the plan; in some of them this rank has nothing to do
  std::size_t num_sends = 0;
  std::size_t num_staging_elements = 0;
  std::size_t num_elements_sent = 0;
  // Sends that no write waits for: their receivers may still read them at the end.
  std::vector<std::size_t> sends_at_end;
};

// The program of one rank of a valid plan.
// Throws Error{Usage} when the plan is not valid or the rank is outside it.
RankProgram rank_program(const plan::CollectivePlan& plan, int rank);
// Those of all ranks.
std::vector<RankProgram> rank_programs(const plan::CollectivePlan& plan);

}  // namespace lockstep::comm
