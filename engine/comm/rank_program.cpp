#include "engine/comm/rank_program.h"

#include <algorithm>

namespace lockstep::comm {
namespace {

// A send out of the buffer that may still be read by its receiver.
struct OpenSend {
  std::size_t number;
  plan::Chunk chunk;
};

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
      num_staging_elements += send.chunk.count;
    }
    send.from = ProgramSend::From::staging;
    send.staging_offset = staged->staging_offset;
  }
}

// Takes the open sends that a write overwrites off the list: from then on they have arrived.
std::vector<std::size_t> take_overwritten(std::vector<OpenSend>& open, plan::Chunk chunk) {
  std::vector<std::size_t> numbers;
  std::erase_if(open, [&](const OpenSend& send) {
    if (!plan::overlaps(send.chunk, chunk)) return false;
    numbers.push_back(send.number);
    return true;
  });
  return numbers;
}

}  // namespace

RankProgram rank_program(const plan::CollectivePlan& plan, int rank) {
  plan::require_valid(plan);
  RankProgram program;
  program.num_elements_sent = plan::elements_sent(plan, rank);
  std::vector<OpenSend> open;
  for (const plan::Step& step : plan.steps) {
    ProgramStep mine;
    mine.sends = sends_of(step, rank);
    for (plan::Write& write : plan::writes_of_rank(step, rank)) {
      mine.writes.push_back({std::move(write), {}});
    }
    stage(mine, program.num_staging_elements);
    for (const ProgramSend& send : mine.sends) {
      if (send.from == ProgramSend::From::buffer) open.push_back({program.num_sends, send.chunk});
      ++program.num_sends;
    }
    for (ProgramWrite& write : mine.writes) {
      write.sends_before = take_overwritten(open, write.write.chunk);
    }
    if (!mine.sends.empty() || !mine.writes.empty()) program.steps.push_back(std::move(mine));
  }
  return program;
}

}  // namespace lockstep::comm
