#include "tools/torch_trace/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "engine/trace/breakdown.h"

namespace lockstep::tools {
namespace {

using trace::format_seconds;

// Backward's share of computation, where gradients may travel: twice a forward pass.
constexpr double kBackwardShare = 2.0 / 3;

// Exposed communication, once all ranks are there.
double exposed_transfer(const TraceRun& run) {
  return std::max(0.0, run.mean_parts().exposed_comm - run.mean_parts().waiting);
}

std::string exposed_text(const TraceRun& run) {
  if (run.num_matched == 0) {
    return fmt::format("{} of communication is exposed, and waiting for other ranks may be in it",
                       format_seconds(exposed_transfer(run)));
  }
  return fmt::format("{} of the exposed communication is not waiting",
                     format_seconds(exposed_transfer(run)));
}

// The kind of collective that is exposed longest.
std::string exposed_kind(const std::vector<CollectiveGroup>& groups) {
  std::map<std::string, double> seconds;
  for (const CollectiveGroup& group : groups) {
    seconds[group.kind] +=
        group.calls * std::max(0.0, group.transfer_seconds() - group.hidden_seconds);
  }
  const auto most =
      std::ranges::max_element(seconds, {}, [](const auto& each) { return each.second; });
  return most == seconds.end() ? "" : most->first;
}

bool is_of_data_parallelism(std::string_view kind) {
  return kind == "all_reduce" || kind == "all_gather" || kind == "reduce_scatter";
}

Change more_overlap(const TraceRun& run, const std::vector<CollectiveGroup>& groups) {
  const TraceParts parts = run.mean_parts();
  const RankTrace& trace = run.ranks.front().trace;
  const std::string kind = exposed_kind(groups);
  const bool is_in_backward = kind == "all_reduce" && !trace.uses_fsdp;
  const double beside = is_in_backward ? kBackwardShare : 1;
  const double room = std::max(0.0, beside * parts.computation - parts.hidden_comm);
  const std::string what =
      !is_of_data_parallelism(kind)
          ? fmt::format("overlap more: compute beside {} what doesn't need its result", kind)
      : trace.uses_fsdp
          ? "overlap more: gather the next layers' parameters earlier (forward_prefetch=True, "
            "backward_prefetch=BACKWARD_PRE; set_modules_to_forward_prefetch() of fully_shard)"
      : trace.uses_ddp ? "overlap more: let all-reduces begin earlier in backward (a smaller "
                         "bucket_cap_mb, static_graph=True)"
                       : "overlap: let all-reduces run during backward, as "
                         "DistributedDataParallel does";
  return {what, std::min(exposed_transfer(run), room),
          fmt::format("{}, and {} of computation {}has no communication beside it; assumes that "
                      "neither slows the other",
                      exposed_text(run), format_seconds(room),
                      is_in_backward ? "in backward (two thirds of all) " : "")};
}

Change fewer_bytes(const TraceRun& run, const std::vector<CollectiveGroup>& groups) {
  const bool is_fsdp = run.ranks.front().trace.uses_fsdp;
  const auto is_half = [](const CollectiveGroup& group) {
    return group.element_bytes > 0 && group.element_bytes < 4;
  };
  const bool are_half = !groups.empty() && is_half(groups.front());
  const std::string kind = exposed_kind(groups);
  const std::string what =
      !is_of_data_parallelism(kind) ? fmt::format("send half the bytes in {}: bf16 or fp8", kind)
      : are_half ? "send half as often: gradients of two batches at once (no_sync())"
      : is_fsdp  ? "send half the bytes: bf16 instead of float32 (MixedPrecision, "
                   "MixedPrecisionPolicy), or gradients of two batches at once"
                 : "send half the bytes: gradients as bf16 (bf16_compress_hook), or those of two "
                   "batches at once (no_sync())";
  return {what, exposed_transfer(run) / 2,
          fmt::format("{}; assumes time in proportion to the bytes", exposed_text(run))};
}

// Messages of a quarter of the largest one's size or less, if they travel at less than half its
// speed.
Change larger_messages(const TraceRun& run, const std::vector<CollectiveGroup>& groups) {
  const auto largest = std::ranges::max_element(groups, {}, &CollectiveGroup::num_bytes);
  const double best = groups.empty() ? 0 : largest->bus_bytes_per_second();
  double lost = 0, all = 0, calls = 0;
  for (const CollectiveGroup& group : groups) {
    const double rate = group.bus_bytes_per_second();
    if (rate <= 0) continue;
    all += group.calls * group.transfer_seconds();
    if (4 * group.num_bytes > largest->num_bytes || 2 * rate > best) continue;
    lost += group.calls * group.transfer_seconds() * (1 - rate / best);
    calls += group.calls;
  }
  // With one rank's trace, waiting looks like slow travel.
  const double exposed = run.num_matched > 0 && all > 0 ? exposed_transfer(run) / all : 0;
  return {"merge small messages: larger buckets (bucket_cap_mb), or larger FSDP units",
          lost * std::min(1.0, exposed),
          fmt::format("small messages, {:.3g} a step, travel at less than half the speed of the "
                      "largest, {:.3g} GB/s, which costs {}; assumes that speed for all, and that "
                      "the same part of them is exposed",
                      calls, best / 1e9, format_seconds(lost))};
}

Change less_waiting(const TraceRun& run) {
  const double wait = run.mean_parts().waiting;
  const std::string who =
      run.slowest ? fmt::format("rank {} is the last one in most steps", run.slowest->rank)
                  : "none is always the last, so look for work that differs, such as sequences of "
                    "unequal length";
  return {"even out the ranks: " + who, wait,
          fmt::format("a rank waits {} in the mean; assumes that all arrive together",
                      format_seconds(wait))};
}

Change no_host_gaps(const TraceRun& run) {
  const TraceParts parts = run.mean_parts();
  const double gaps = parts.host + parts.idle;
  if (run.ranks.front().trace.has_gpu()) {
    return {
        "keep the GPU fed: torch.compile, CUDA graphs or a larger batch; no .item() or print in "
        "the step",
        gaps,
        fmt::format("the GPU has nothing to do for {}, in {} of which the host launches; "
                    "assumes that all of it goes",
                    format_seconds(gaps), format_seconds(parts.host))};
  }
  return {"spend less time between operators: torch.compile, or a larger batch", gaps,
          fmt::format("{} pass in Python and around operators; assumes that all of it goes",
                      format_seconds(gaps))};
}

}  // namespace

double CollectiveGroup::bus_bytes_per_second() const {
  const double n = static_cast<double>(num_ranks);
  const double share = kind == "all_reduce" ? 2 * (n - 1) / n
                       : kind == "all_gather" || kind == "reduce_scatter" || kind == "all_to_all"
                           ? (n - 1) / n
                           : 1;
  return transfer_seconds() > 0 ? share * num_bytes / transfer_seconds() : 0;
}

std::vector<CollectiveGroup> collective_groups(const TraceRun& run) {
  struct Sum {
    CollectiveGroup group;
    double count = 0;
    std::map<std::string, double> beside;
  };
  std::map<std::tuple<std::string, double, std::size_t>, Sum> sums;
  double rank_steps = 0;
  for (const RankBreakdown& rank : run.ranks) {
    rank_steps += static_cast<double>(rank.steps.size());
    for (const CollectiveCall& call : rank.calls) {
      const Collective& collective = call.collective;
      Sum& sum = sums[{collective.kind, collective.num_bytes, collective.num_ranks}];
      sum.group.element_bytes = collective.element_bytes;
      sum.count += 1;
      sum.group.seconds += collective.time.seconds();
      sum.group.wait_seconds += call.wait.seconds();
      sum.group.hidden_seconds += call.hidden_seconds;
      if (!call.hidden_by.empty()) sum.beside[call.hidden_by] += call.hidden_seconds;
    }
  }
  std::vector<CollectiveGroup> groups;
  for (auto& [key, sum] : sums) {
    CollectiveGroup& group = sum.group;
    std::tie(group.kind, group.num_bytes, group.num_ranks) = key;
    group.calls = sum.count / rank_steps;
    for (double* const seconds : {&group.seconds, &group.wait_seconds, &group.hidden_seconds}) {
      *seconds /= sum.count;
    }
    const auto most =
        std::ranges::max_element(sum.beside, {}, [](const auto& each) { return each.second; });
    if (most != sum.beside.end()) group.hidden_by = most->first;
    groups.push_back(std::move(group));
  }
  std::ranges::stable_sort(groups, std::greater{}, [](const CollectiveGroup& group) {
    return group.calls * group.seconds;
  });
  return groups;
}

std::vector<Change> best_changes(const TraceRun& run, const std::vector<CollectiveGroup>& groups) {
  const TraceParts parts = run.mean_parts();
  std::vector<Change> changes{
      more_overlap(run, groups),
      fewer_bytes(run, groups),
      larger_messages(run, groups),
      less_waiting(run),
      {"load batches in other processes: DataLoader(num_workers=4, persistent_workers=True)",
       parts.loader,
       fmt::format("the training thread spends {} in the DataLoader; assumes that there are cores "
                   "for the workers",
                   format_seconds(parts.loader))},
      {"copy while the GPU computes: pin_memory=True, and to(device, non_blocking=True)",
       parts.copies,
       fmt::format("copies take {} in which the GPU does nothing else; assumes that all are hidden",
                   format_seconds(parts.copies))},
      no_host_gaps(run)};
  std::erase_if(changes, [&](const Change& change) { return 50 * change.seconds < parts.step(); });
  std::ranges::stable_sort(changes, std::greater{}, &Change::seconds);
  if (changes.size() > 3) changes.resize(3);
  return changes;
}

}  // namespace lockstep::tools
