#include "tools/torch_trace/breakdown.h"

#include <algorithm>
#include <map>
#include <utility>

namespace lockstep::tools {
namespace {

Intervals computation_time(const RankTrace& trace) {
  return united(Intervals(trace.computation.begin(), trace.computation.end()));
}

Intervals communication_time(const RankTrace& trace) {
  Intervals times;
  for (const Collective& each : trace.collectives) times.push_back(each.time);
  return united(std::move(times));
}

TraceParts parts_of(const RankTrace& trace, const Intervals& computation,
                    const Intervals& communication, Interval step) {
  using Layer = std::pair<const Intervals*, double TraceParts::*>;
  std::vector<Layer> layers{{&computation, &TraceParts::computation},
                            {&communication, &TraceParts::exposed_comm},
                            {&trace.copies, &TraceParts::copies},
                            {&trace.loader, &TraceParts::loader},
                            {&trace.host, &TraceParts::host}};
  if (!trace.has_gpu()) std::rotate(layers.begin(), layers.begin() + 3, layers.begin() + 4);
  TraceParts parts;
  Intervals rest{step};
  for (const auto& [times, part] : layers) {
    const Intervals here = within(*times, step);
    parts.*part = total_seconds(common(rest, here));
    rest = without(rest, here);
  }
  parts.idle = total_seconds(rest);
  parts.hidden_comm = total_seconds(within(communication, step)) - parts.exposed_comm;
  return parts;
}

// The name of what ran longest beside the interval; empty if nothing did.
std::string longest_beside(const RankTrace& trace, Interval time, double longest_work) {
  std::map<std::uint32_t, double> seconds;
  auto work =
      std::ranges::lower_bound(trace.computation, time.begin - longest_work, {}, &Work::begin);
  for (; work != trace.computation.end() && work->begin < time.end; ++work) {
    const double both = std::min(work->end, time.end) - std::max(work->begin, time.begin);
    if (both > 0) seconds[work->name] += both;
  }
  const auto most =
      std::ranges::max_element(seconds, {}, [](const auto& each) { return each.second; });
  return most == seconds.end() ? "" : trace.names[most->first];
}

std::vector<CollectiveCall> calls_of(const RankTrace& trace, const Intervals& covering) {
  double longest_work = 0;
  for (const Work& work : trace.computation) longest_work = std::max(longest_work, work.seconds());
  std::vector<CollectiveCall> calls;
  for (const Collective& collective : trace.collectives) {
    const Interval time = collective.time;
    const auto after = std::ranges::upper_bound(
        trace.steps, time.begin, {}, [](const TorchStep& step) { return step.time.begin; });
    if (after == trace.steps.begin()) continue;
    const std::size_t step = static_cast<std::size_t>(after - trace.steps.begin()) - 1;
    if (time.begin >= trace.steps[step].time.end) continue;
    CollectiveCall call;
    call.collective = collective;
    call.step = step;
    call.wait = {time.begin, time.begin};
    call.hidden_seconds = total_seconds(within(covering, time));
    call.hidden_by = longest_beside(trace, time, longest_work);
    calls.push_back(std::move(call));
  }
  return calls;
}

DeviceTotals device_totals(const RankTrace& trace, const Intervals& computation,
                           const Intervals& communication) {
  Intervals busy = computation;
  busy.insert(busy.end(), communication.begin(), communication.end());
  busy.insert(busy.end(), trace.copies.begin(), trace.copies.end());
  busy = united(std::move(busy));
  DeviceTotals totals;
  if (busy.empty()) return totals;  // kernels without a duration
  totals.span = busy.back().end - busy.front().begin;
  totals.idle = totals.span - total_seconds(busy);
  totals.computation = total_seconds(computation);
  totals.other = totals.span - totals.idle - totals.computation;
  totals.communication = total_seconds(communication);
  totals.hidden = total_seconds(common(communication, computation));
  return totals;
}

}  // namespace

TraceParts mean(const std::vector<TraceParts>& parts) {
  TraceParts result;
  for (const auto& [name, seconds] : kTraceParts) {
    for (const TraceParts& each : parts) {
      result.*seconds += each.*seconds / static_cast<double>(parts.size());
    }
  }
  return result;
}

RankBreakdown break_down(RankTrace trace) {
  RankBreakdown result;
  const Intervals computation = computation_time(trace);
  const Intervals communication = communication_time(trace);
  for (const TorchStep& step : trace.steps) {
    result.steps.push_back(parts_of(trace, computation, communication, step.time));
  }
  result.covering = computation;
  if (!trace.has_gpu()) {
    result.covering.insert(result.covering.end(), trace.loader.begin(), trace.loader.end());
    result.covering = united(std::move(result.covering));
  }
  result.calls = calls_of(trace, result.covering);
  if (trace.has_gpu()) result.device = device_totals(trace, computation, communication);
  result.trace = std::move(trace);
  return result;
}

}  // namespace lockstep::tools
