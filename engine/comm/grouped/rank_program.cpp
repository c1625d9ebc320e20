#include "engine/comm/grouped/rank_program.h"

#include <algorithm>

namespace lockstep::comm {
namespace {

std::vector<ProgramSend> sends_of(const plan::Step& step, int rank) {
  std::vector<ProgramSend> sends;
  for (const plan::Transfer& transfer : step.transfers) {
    if (transfer.from_rank != rank) continue;
    ProgramSend send;
    send.to_rank = transfer.to_rank;
    send.chunk = transfer.chunk;
    sends.push_back(send);
  }
  std::ranges::stable_sort(sends, {}, [](const ProgramSend& send) { return send.chunk.offset; });
  return sends;
}

// Stages what the step both sends and overwrites; a chunk that goes to several ranks once.
void stage(ProgramStep& step, std::size_t& num_staging_elements) {
  for (ProgramSend& send : step.sends) {
    const bool is_overwritten = std::ranges::any_of(step.writes, [&](const ProgramWrite& write) {
      return plan::overlaps(write.write.chunk, send.chunk);
    });
    if (!is_overwritten) continue;
    auto staged = std::ranges::find(step.staged, send.chunk, &StagedChunk::chunk);
    if (staged == step.staged.end()) {
      staged = step.staged.insert(staged, {send.chunk, num_staging_elements});
      num_staging_elements += staging_room(send.chunk.count);
    }
    send.from = ProgramSend::From::staging;
    send.staging_offset = staged->staging_offset;
  }
}

// Takes the sends that a write overwrites off the list of those that may still be read.
std::vector<std::size_t> take_overwritten(std::vector<ProgramSend>& open, plan::Chunk chunk) {
  std::vector<std::size_t> numbers;
  std::erase_if(open, [&](const ProgramSend& send) {
    if (send.from == ProgramSend::From::staging || !plan::overlaps(send.chunk, chunk)) return false;
    numbers.push_back(send.number);
    return true;
  });
  return numbers;
}

RankProgram program_of(const plan::CollectivePlan& plan, int rank) {
  RankProgram program;
  program.num_elements_sent = plan::elements_sent(plan, rank);
  std::vector<ProgramSend> open;
  for (const plan::Step& step : plan.steps) {
    ProgramStep& mine = program.steps.emplace_back();
    mine.sends = sends_of(step, rank);
    for (plan::Write& write : plan::writes_of_rank(step, rank)) {
      mine.writes.push_back({std::move(write), {}});
    }
    stage(mine, program.num_staging_elements);
    for (ProgramWrite& write : mine.writes) {
      write.sends_before = take_overwritten(open, write.write.chunk);
    }
    for (ProgramSend& send : mine.sends) {
      send.number = program.num_sends++;
      open.push_back(send);
    }
  }
  for (const ProgramSend& send : open) program.sends_at_end.push_back(send.number);
  return program;
}

}  // namespace

RankProgram rank_program(const plan::CollectivePlan& plan, int rank) {
  plan::require_valid(plan);
  return program_of(plan, rank);
}

std::vector<RankProgram> rank_programs(const plan::CollectivePlan& plan) {
  plan::require_valid(plan);
  std::vector<RankProgram> programs;
  for (int rank = 0; rank < plan.world_size; ++rank) programs.push_back(program_of(plan, rank));
  return programs;
}

}  // namespace lockstep::comm
