#include "tools/torch_trace/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/text.h"
#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

// One collective's calls, one of each rank, in the ranks' order.
using Meeting = std::vector<CollectiveCall*>;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// The n-th call of a kind and size in a step meets the other ranks' n-th, if all ranks made as
// many.
std::vector<std::pair<std::size_t, Meeting>> meetings_of(TraceRun& run) {
  using Key = std::tuple<std::size_t, std::string, double>;
  std::map<Key, std::vector<Meeting>> calls;  // by rank, then in order
  for (std::size_t r = 0; r < run.ranks.size(); ++r) {
    RankBreakdown& rank = run.ranks[r];
    for (CollectiveCall& call : rank.calls) {
      if (call.collective.num_ranks != run.world_size) continue;
      const std::size_t number = rank.trace.steps[call.step].number;
      // Ranks may send different parts in an all-to-all.
      const bool has_one_size = call.collective.kind != "all_to_all";
      std::vector<Meeting>& of_ranks =
          calls[{number, call.collective.kind, has_one_size ? call.collective.num_bytes : 0}];
      of_ranks.resize(run.ranks.size());
      of_ranks[r].push_back(&call);
    }
  }
  std::vector<std::pair<std::size_t, Meeting>> meetings;
  for (const auto& [key, of_ranks] : calls) {
    const std::size_t count = of_ranks.front().size();
    if (!std::ranges::all_of(of_ranks, [&](const Meeting& m) { return m.size() == count; }))
      continue;
    for (std::size_t i = 0; i < count; ++i) {
      Meeting meeting;
      for (const Meeting& own : of_ranks) meeting.push_back(own[i]);
      meetings.emplace_back(std::get<0>(key), std::move(meeting));
    }
  }
  return meetings;
}

// An all-reduce cannot end on one rank before it begins on another. Where traces say so, their
// clocks differ; then the ends, which are nearly at one time, show by how much.
std::vector<double> clock_offsets(const std::vector<std::pair<std::size_t, Meeting>>& meetings,
                                  std::size_t num_ranks) {
  std::vector<std::vector<double>> behind(num_ranks);
  std::size_t num_impossible = 0, num_all = 0;
  for (const auto& [step, meeting] : meetings) {
    if (meeting.front()->collective.kind != "all_reduce" &&
        meeting.front()->collective.kind != "all_gather") {
      continue;
    }
    double last_begin = -1e300, first_end = 1e300;
    for (std::size_t r = 0; r < num_ranks; ++r) {
      const Interval time = meeting[r]->collective.time;
      last_begin = std::max(last_begin, time.begin);
      first_end = std::min(first_end, time.end);
      behind[r].push_back(meeting.front()->collective.time.end - time.end);
    }
    ++num_all;
    num_impossible += last_begin > first_end;
  }
  if (10 * num_impossible <= num_all) return {};
  std::vector<double> offsets;
  for (const std::vector<double>& of_rank : behind) offsets.push_back(median(of_rank));
  return offsets;
}

// Sets the waits of a meeting's calls, and returns the index of the last rank.
std::size_t set_waits(TraceRun& run, const Meeting& meeting) {
  const auto begin = [&](std::size_t r) {
    return meeting[r]->collective.time.begin +
           (run.clock_offsets.empty() ? 0 : run.clock_offsets[r]);
  };
  std::size_t last = 0;
  for (std::size_t r = 1; r < meeting.size(); ++r) {
    if (begin(r) > begin(last)) last = r;
  }
  for (std::size_t r = 0; r < meeting.size(); ++r) {
    const Interval time = meeting[r]->collective.time;
    meeting[r]->wait = {time.begin, std::min(time.begin + begin(last) - begin(r), time.end)};
  }
  return last;
}

// A step waits while collectives wait, and neither another one nor computation goes on.
void set_waiting_parts(RankBreakdown& rank) {
  std::vector<Intervals> waits(rank.steps.size());
  Intervals busy = rank.covering;
  for (const CollectiveCall& call : rank.calls) {
    waits[call.step].push_back(call.wait);
    busy.push_back({call.wait.end, call.collective.time.end});
  }
  busy = united(std::move(busy));
  for (std::size_t i = 0; i < waits.size(); ++i) {
    const Interval step = rank.trace.steps[i].time;
    rank.steps[i].waiting =
        total_seconds(without(within(united(std::move(waits[i])), step), within(busy, step)));
  }
}

// In which part of its steps the rank is longest behind the median rank.
void set_reason(SlowestRank& slowest, const TraceRun& run) {
  std::vector<TraceParts> means;
  std::size_t own = 0;
  for (std::size_t r = 0; r < run.ranks.size(); ++r) {
    const RankBreakdown& rank = run.ranks[r];
    std::vector<TraceParts> steps;
    for (std::size_t i = 0; i < rank.steps.size(); ++i) {
      if (rank.trace.steps[i].number >= slowest.since.value_or(0)) steps.push_back(rank.steps[i]);
    }
    means.push_back(mean(steps));
    if (rank.trace.rank == slowest.rank) own = r;
  }
  for (const auto& [name, seconds] : kTraceParts) {
    if (name == "exposed_communication" || name == "waiting" || name == "hidden_communication") {
      continue;
    }
    std::vector<double> others;
    for (std::size_t r = 0; r < means.size(); ++r) {
      if (r != own) others.push_back(means[r].*seconds);
    }
    const double more = means[own].*seconds - median(others);
    if (more <= slowest.more_seconds) continue;
    slowest.more_seconds = more;
    slowest.part = name;
  }
}

// The seconds that each of the others waited for a rank, in the mean: for each step's number, and
// each rank.
using Blame = std::map<std::size_t, std::vector<double>>;

Blame blame_of(const TraceRun& run, const std::vector<std::pair<std::size_t, Meeting>>& meetings,
               const std::vector<std::size_t>& last_ranks) {
  const std::size_t num_ranks = run.ranks.size();
  std::map<std::tuple<std::size_t, std::size_t, std::size_t>, Intervals> waits;
  for (std::size_t i = 0; i < meetings.size(); ++i) {
    for (std::size_t r = 0; r < num_ranks; ++r) {
      waits[{meetings[i].first, last_ranks[i], r}].push_back(meetings[i].second[r]->wait);
    }
  }
  Blame blame;
  for (auto& [key, intervals] : waits) {
    const auto& [step, last, waiter] = key;
    std::vector<double>& for_rank = blame[step];
    for_rank.resize(num_ranks);
    for_rank[last] +=
        total_seconds(united(std::move(intervals))) / static_cast<double>(num_ranks - 1);
  }
  return blame;
}

// The rank for which the others wait longest in more than half of the steps, if that is a
// fiftieth of a step or more.
std::optional<SlowestRank> slowest_rank(const TraceRun& run, const Blame& blame) {
  std::vector<double> sums(run.ranks.size());
  for (const auto& [step, for_rank] : blame) {
    for (std::size_t r = 0; r < sums.size(); ++r) sums[r] += for_rank[r];
  }
  const auto most = static_cast<std::size_t>(std::ranges::max_element(sums) - sums.begin());
  SlowestRank slowest;
  slowest.rank = run.ranks[most].trace.rank;
  slowest.wait_seconds = sums[most] / static_cast<double>(blame.size());
  for (const auto& [step, for_rank] : blame) {
    const bool is_slowest = std::ranges::max(for_rank) == for_rank[most] && for_rank[most] > 0;
    slowest.num_steps += is_slowest;
    if (!is_slowest) slowest.since.reset();
    if (is_slowest && !slowest.since) slowest.since = step;
  }
  if (2 * slowest.num_steps <= blame.size()) return {};
  if (50 * slowest.wait_seconds < run.mean_parts().step()) return {};
  set_reason(slowest, run);
  return slowest;
}

// The properties that all ranks of one run share: "4 ranks, GPU, FSDP".
std::string run_text(const RankTrace& trace) {
  return fmt::format("{}{}{}", count_text(trace.world_size, "rank"), trace.has_gpu() ? ", GPU" : "",
                     trace.uses_fsdp ? ", FSDP" : "");
}

void require_one_run(const std::vector<RankBreakdown>& ranks) {
  const RankTrace& first = ranks.front().trace;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const RankTrace& trace = ranks[i].trace;
    require(ranks.size() == 1 || trace.says_rank, ErrorCode::Io, "explain",
            "'{}' doesn't say its rank: record after torch.distributed.init_process_group(), or "
            "give one file",
            shown(trace.path));
    require(i == 0 || trace.rank != ranks[i - 1].trace.rank, ErrorCode::Io, "explain",
            "'{}' and '{}' are both of rank {}: give one file of each rank",
            shown(ranks[i == 0 ? 0 : i - 1].trace.path), shown(trace.path), trace.rank);
    require(run_text(trace) == run_text(first), ErrorCode::Io, "explain",
            "'{}' ({}) and '{}' ({}) are of two runs", shown(first.path), run_text(first),
            shown(trace.path), run_text(trace));
    const auto is_common = [&](const TorchStep& step) {
      return std::ranges::find(first.steps, step.number, &TorchStep::number) != first.steps.end();
    };
    require(std::ranges::any_of(trace.steps, is_common), ErrorCode::Io, "explain",
            "'{}' and '{}' have no step in common: record all ranks with one schedule",
            shown(first.path), shown(trace.path));
  }
}

}  // namespace

TraceParts TraceRun::mean_parts() const {
  std::vector<TraceParts> all;
  for (const RankBreakdown& rank : ranks) all.push_back(mean(rank.steps));
  return mean(all);
}

std::size_t TraceRun::num_steps() const {
  std::size_t fewest = ranks.front().steps.size();
  for (const RankBreakdown& rank : ranks) fewest = std::min(fewest, rank.steps.size());
  return fewest;
}

TraceRun join_ranks(std::vector<RankBreakdown> ranks) {
  std::ranges::sort(ranks, {}, [](const RankBreakdown& rank) { return rank.trace.rank; });
  require_one_run(ranks);
  TraceRun run;
  run.ranks = std::move(ranks);
  run.world_size = run.ranks.front().trace.world_size;
  constexpr std::size_t kMostRanks = 1 << 20;  // a larger world is no world
  for (std::size_t rank = 0; rank < std::min(run.world_size, kMostRanks); ++rank) {
    const auto has_rank = [&](const RankBreakdown& each) { return each.trace.rank == rank; };
    if (std::ranges::none_of(run.ranks, has_rank)) run.missing_ranks.push_back(rank);
  }
  if (run.ranks.size() < 2) return run;
  const auto meetings = meetings_of(run);
  run.num_matched = meetings.size();
  if (meetings.empty()) return run;
  run.clock_offsets = clock_offsets(meetings, run.ranks.size());
  std::vector<std::size_t> last_ranks;
  for (const auto& [step, meeting] : meetings) last_ranks.push_back(set_waits(run, meeting));
  for (RankBreakdown& rank : run.ranks) set_waiting_parts(rank);
  run.slowest = slowest_rank(run, blame_of(run, meetings, last_ranks));
  return run;
}

}  // namespace lockstep::tools
