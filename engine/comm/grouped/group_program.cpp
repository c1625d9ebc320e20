#include "engine/comm/grouped/group_program.h"

#include <algorithm>

#include "engine/plan/step_writes.h"

namespace lockstep::comm {
namespace {

// A read of a rank's memory that the rank's stream has not waited for.
struct OpenRead {
  int owner = 0;
  int reader = 0;
  std::size_t receive = 0;
  plan::Chunk chunk;
  GroupSource::From from = GroupSource::From::buffer;
};

class Builder {
 public:
  explicit Builder(const plan::CollectivePlan& plan) : plan_(plan) {
    const auto num_ranks = static_cast<std::size_t>(plan.world_size);
    program_.at_end.resize(num_ranks);
    program_.num_staging_elements.resize(num_ranks);
    program_.num_fetched_elements.resize(num_ranks);
  }

  GroupProgram build() {
    for (const plan::Step& step : plan_.steps) add(step);
    for (const OpenRead& read : open_) {
      add_latest(program_.at_end[static_cast<std::size_t>(read.owner)], read);
    }
    return std::move(program_);
  }

 private:
  void add(const plan::Step& step) {
    GroupStep group_step;
    std::vector<std::vector<plan::Write>> writes;
    for (int rank = 0; rank < plan_.world_size; ++rank) {
      writes.push_back(plan::writes_of_rank(step, rank));
      for (const plan::Write& write : writes.back()) {
        group_step.senders.insert(group_step.senders.end(), write.from_ranks.begin(),
                                  write.from_ranks.end());
      }
    }
    std::ranges::sort(group_step.senders);
    const auto twice = std::ranges::unique(group_step.senders);
    group_step.senders.erase(twice.begin(), twice.end());
    std::vector<OpenRead> reads;
    for (int rank = 0; rank < plan_.world_size; ++rank) {
      if (writes[static_cast<std::size_t>(rank)].empty()) continue;
      GroupReceive receive;
      receive.rank = rank;
      receive.number = program_.num_receives++;
      for (const plan::Write& write : writes[static_cast<std::size_t>(rank)]) {
        add_write(write, writes, group_step, receive, reads);
      }
      group_step.receives.push_back(std::move(receive));
    }
    open_.insert(open_.end(), reads.begin(), reads.end());
    program_.steps.push_back(std::move(group_step));
  }

  void add_write(const plan::Write& write, const std::vector<std::vector<plan::Write>>& writes,
                 GroupStep& step, GroupReceive& receive, std::vector<OpenRead>& reads) {
    GroupWrite group_write{write.chunk, write.combine, {}};
    bool has_own = write.combine == plan::Combine::copy;  // then it is overwritten
    for (const int from : write.from_ranks) {
      if (!has_own && from > receive.rank) {
        group_write.sources.push_back({receive.rank, GroupSource::From::buffer, 0});
        has_own = true;
      }
      group_write.sources.push_back(source_of(from, write.chunk, writes, step));
      if (std::ranges::find(receive.from_ranks, from) == receive.from_ranks.end()) {
        receive.from_ranks.push_back(from);
      }
      reads.push_back(
          {from, receive.rank, receive.number, write.chunk, group_write.sources.back().from});
    }
    if (!has_own) group_write.sources.push_back({receive.rank, GroupSource::From::buffer, 0});
    std::size_t& fetched = program_.num_fetched_elements[static_cast<std::size_t>(receive.rank)];
    fetched = std::max(fetched, write.from_ranks.size() * staging_room(write.chunk.count));
    // Whoever read what is overwritten now, in an earlier step, must be done with it.
    std::erase_if(open_, [&](const OpenRead& read) {
      const bool is_overwritten = read.owner == receive.rank &&
                                  read.from == GroupSource::From::buffer &&
                                  plan::overlaps(read.chunk, write.chunk);
      if (is_overwritten) add_latest(receive.after, read);
      return is_overwritten;
    });
    receive.writes.push_back(std::move(group_write));
  }

  // What `from` sends in a step: out of its staging memory where the step overwrites it there.
  GroupSource source_of(int from, plan::Chunk chunk,
                        const std::vector<std::vector<plan::Write>>& writes, GroupStep& step) {
    const auto& own_writes = writes[static_cast<std::size_t>(from)];
    const bool is_overwritten = std::ranges::any_of(
        own_writes, [&](const plan::Write& own) { return plan::overlaps(own.chunk, chunk); });
    if (!is_overwritten) return {from, GroupSource::From::buffer, 0};
    for (const GroupStage& stage : step.staged) {
      if (stage.rank == from && stage.chunk == chunk) {
        return {from, GroupSource::From::staging, stage.staging_offset};
      }
    }
    std::size_t& num_elements = program_.num_staging_elements[static_cast<std::size_t>(from)];
    step.staged.push_back({from, chunk, num_elements});
    num_elements += staging_room(chunk.count);
    return {from, GroupSource::From::staging, step.staged.back().staging_offset};
  }

  // A stream that waits for a rank's later receive has waited for the earlier ones.
  void add_latest(std::vector<std::size_t>& receives, const OpenRead& read) {
    if (reader_of_.size() < program_.num_receives) reader_of_.resize(program_.num_receives, -1);
    reader_of_[read.receive] = read.reader;
    for (std::size_t& receive : receives) {
      if (reader_of_[receive] != read.reader) continue;
      receive = std::max(receive, read.receive);
      return;
    }
    receives.push_back(read.receive);
  }

  const plan::CollectivePlan& plan_;
  GroupProgram program_;
  std::vector<OpenRead> open_;
  std::vector<int> reader_of_;  // of each receive
};

}  // namespace

GroupProgram group_program(const plan::CollectivePlan& plan) {
  plan::require_valid(plan);
  return Builder(plan).build();
}

}  // namespace lockstep::comm
