#include "engine/plan/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "engine/core/error.h"
#include "engine/core/text.h"

namespace lockstep::plan {
namespace {

using Pass = PipelineWork::Pass;

const std::array<std::string, 3> kNames = {"gpipe", "1f1b", "interleaved"};

// A stage takes a group of micro-batches through its first chunk, then through the next one, and so
// on; forward from the first chunk, backward from the last. As many micro-batches as stages are a
// group, or all of them if there are fewer.
std::vector<PipelineWork> in_groups(const PipelinePlan& plan, Pass pass) {
  const std::size_t group = std::min(plan.num_stages, plan.num_micro_batches);
  std::vector<PipelineWork> works;
  for (std::size_t first = 0; first < plan.num_micro_batches; first += group) {
    for (std::size_t c = 0; c < plan.num_chunks; ++c) {
      const std::size_t chunk = pass == Pass::forward ? c : plan.num_chunks - 1 - c;
      for (std::size_t i = 0; i < group; ++i) works.push_back({pass, first + i, chunk});
    }
  }
  return works;
}

// In their order, through the only chunk.
std::vector<PipelineWork> in_order(const PipelinePlan& plan, Pass pass) {
  std::vector<PipelineWork> works;
  for (std::size_t i = 0; i < plan.num_micro_batches; ++i) works.push_back({pass, i, 0});
  return works;
}

// How many forward passes a stage does before its first backward pass: behind it there are stages
// to fill, and, interleaved, its own later chunks.
std::size_t num_ahead(const PipelinePlan& plan, std::size_t stage) {
  const std::size_t behind = plan.num_stages - 1 - stage;
  const std::size_t all = plan.num_micro_batches * plan.num_chunks;
  if (plan.schedule == PipelineSchedule::gpipe) return all;
  if (plan.schedule == PipelineSchedule::one_forward_one_backward) return std::min(behind, all);
  const std::size_t group = std::min(plan.num_stages, plan.num_micro_batches);
  return std::min((plan.num_chunks - 1) * group + 2 * behind, all);
}

std::vector<PipelineWork> works_of(const PipelinePlan& plan, std::size_t stage) {
  const bool is_interleaved = plan.schedule == PipelineSchedule::interleaved;
  const auto list = [&](Pass pass) {
    return is_interleaved ? in_groups(plan, pass) : in_order(plan, pass);
  };
  const std::vector<PipelineWork> forward = list(Pass::forward);
  const std::vector<PipelineWork> backward = list(Pass::backward);
  const std::size_t ahead = num_ahead(plan, stage);
  std::vector<PipelineWork> works(forward.begin(),
                                  forward.begin() + static_cast<std::ptrdiff_t>(ahead));
  for (std::size_t i = 0; i < backward.size(); ++i) {
    if (ahead + i < forward.size()) works.push_back(forward[ahead + i]);
    works.push_back(backward[i]);
  }
  return works;
}

// When each part has passed each micro-batch, and -1 until it has.
class Passed {
 public:
  Passed(const PipelinePlan& plan)
      : num_micro_batches_(plan.num_micro_batches),
        ends_(2 * plan.num_parts() * plan.num_micro_batches, -1) {}
  double& operator()(Pass pass, std::size_t part, std::size_t micro_batch) {
    return ends_[2 * (part * num_micro_batches_ + micro_batch) + (pass == Pass::forward ? 0 : 1)];
  }

 private:
  std::size_t num_micro_batches_;
  std::vector<double> ends_;
};

// When what the work needs has arrived; negative as long as that is not known.
double ready_at(const PipelinePlan& plan, const PipelineCosts& costs, Passed& passed,
                const PipelineWork& work, std::size_t part) {
  const std::size_t i = work.micro_batch;
  const auto from = [&](double end, double hop) { return end < 0 ? end : end + hop; };
  if (work.pass == Pass::forward) {
    return part == 0 ? 0 : from(passed(Pass::forward, part - 1, i), costs.hop[part - 1]);
  }
  if (passed(Pass::forward, part, i) < 0) return -1;
  if (part + 1 == plan.num_parts()) return 0;
  return from(passed(Pass::backward, part + 1, i), costs.hop[part]);
}

// "3", of chunk b "3b".
std::string number_of(const PipelinePlan& plan, const PipelineWork& work) {
  std::string number = std::to_string(work.micro_batch);
  if (plan.num_chunks > 1) number += static_cast<char>('a' + work.chunk % 26);
  return number;
}

std::string label_of(const PipelinePlan& plan, const PipelineWork& work) {
  return (work.pass == Pass::forward ? "F" : "B") + number_of(plan, work);
}

double cost_of(const PipelineCosts& costs, const PipelineWork& work, std::size_t part) {
  if (work.pass == Pass::forward) return costs.forward[part];
  const bool is_again = work.micro_batch > 0 && !costs.again.empty();
  return costs.backward[part] + (is_again ? costs.again[part] : 0);
}

// How many parts it takes when none may cost more.
std::size_t num_parts_within(const std::vector<double>& costs, double limit) {
  std::size_t count = 1;
  double filled = 0;
  for (const double cost : costs) {
    if (filled > 0 && filled + cost > limit) {
      ++count;
      filled = 0;
    }
    filled += cost;
  }
  return count;
}

}  // namespace

std::string_view to_string(PipelineSchedule schedule) {
  return kNames[static_cast<std::size_t>(schedule)];
}

PipelineSchedule parse_pipeline_schedule(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  require(found != kNames.end(), ErrorCode::Usage, "pipeline",
          "unknown schedule '{}'; use gpipe, 1f1b or interleaved{}", name,
          did_you_mean(name, kNames));
  return static_cast<PipelineSchedule>(found - kNames.begin());
}

PipelinePlan pipeline_plan(PipelineSchedule schedule, std::size_t num_stages,
                           std::size_t num_micro_batches, std::size_t num_chunks) {
  require(num_stages > 0 && num_micro_batches > 0 && num_chunks > 0, ErrorCode::Usage, "pipeline",
          "needs at least 1 stage, 1 micro-batch and 1 chunk, found {}, {} and {}", num_stages,
          num_micro_batches, num_chunks);
  const bool is_interleaved = schedule == PipelineSchedule::interleaved;
  require(is_interleaved || num_chunks == 1, ErrorCode::Usage, "pipeline",
          "a stage of {} holds one chunk of the model, found {}; use interleaved",
          to_string(schedule), num_chunks);
  require(!is_interleaved || num_micro_batches <= num_stages || num_micro_batches % num_stages == 0,
          ErrorCode::Usage, "pipeline",
          "interleaved on {} stages needs a multiple of {} micro-batches, found {}; use {} or {}",
          num_stages, num_stages, num_micro_batches, num_micro_batches / num_stages * num_stages,
          (num_micro_batches / num_stages + 1) * num_stages);
  PipelinePlan plan{schedule, num_stages, num_micro_batches, num_chunks, {}};
  for (std::size_t stage = 0; stage < num_stages; ++stage) {
    plan.stages.push_back(works_of(plan, stage));
  }
  return plan;
}

std::size_t fitting_micro_batches(PipelineSchedule schedule, std::size_t num_stages,
                                  std::size_t wanted, std::size_t num_rows) {
  const std::size_t most = std::min(wanted, num_rows);
  if (schedule != PipelineSchedule::interleaved || most <= num_stages) return most;
  return most / num_stages * num_stages;
}

PipelineTimes time_pipeline(const PipelinePlan& plan, const PipelineCosts& costs) {
  PipelineTimes times;
  times.begin.resize(plan.num_stages);
  times.end.resize(plan.num_stages);
  Passed passed(plan);
  std::size_t num_left = 0;
  for (const auto& works : plan.stages) num_left += works.size();
  while (num_left > 0) {
    const std::size_t before = num_left;
    for (std::size_t stage = 0; stage < plan.num_stages; ++stage) {
      std::vector<double>& ends = times.end[stage];
      while (ends.size() < plan.stages[stage].size()) {
        const PipelineWork& work = plan.stages[stage][ends.size()];
        const std::size_t part = plan.part_of(stage, work.chunk);
        const double ready = ready_at(plan, costs, passed, work, part);
        if (ready < 0) break;
        times.begin[stage].push_back(std::max(ready, ends.empty() ? 0 : ends.back()));
        ends.push_back(times.begin[stage].back() + cost_of(costs, work, part));
        passed(work.pass, part, work.micro_batch) = ends.back();
        times.length = std::max(times.length, ends.back());
        --num_left;
      }
    }
    require(num_left < before, ErrorCode::State, "pipeline",
            "the stages wait for each other with {} pieces of work left", num_left);
  }
  return times;
}

PipelineTimes pipeline_slots(const PipelinePlan& plan) {
  const std::vector<double> one(plan.num_parts(), 1);
  return time_pipeline(plan, {one, one, std::vector<double>(plan.num_parts(), 0)});
}

std::size_t most_kept(const PipelinePlan& plan, std::size_t stage) {
  std::size_t kept = 0;
  std::size_t most = 0;
  for (const PipelineWork& work : plan.stages[stage]) {
    work.pass == Pass::forward ? ++kept : --kept;
    most = std::max(most, kept);
  }
  return most;
}

double pipeline_bubble(const PipelinePlan& plan) {
  const auto works = static_cast<double>(2 * plan.num_micro_batches * plan.num_chunks);
  return 1 - works / pipeline_slots(plan).length;
}

double pipeline_bubble_formula(std::size_t num_stages, std::size_t num_micro_batches,
                               std::size_t num_chunks) {
  const auto ahead = static_cast<double>(num_stages - 1);
  return ahead / (static_cast<double>(num_micro_batches * num_chunks) + ahead);
}

std::string describe(const PipelinePlan& plan, const PipelineWork& work) {
  return (work.pass == Pass::forward ? "forward " : "backward ") + number_of(plan, work);
}

std::string to_string(const PipelinePlan& plan) {
  const PipelineTimes slots = pipeline_slots(plan);
  const bool has_chunks = plan.num_chunks > 1;
  std::string text = fmt::format(
      "{}: {} stages{}, {} micro-batches\n", to_string(plan.schedule), plan.num_stages,
      has_chunks ? fmt::format(" of {} chunks", plan.num_chunks) : "", plan.num_micro_batches);
  const std::size_t width = label_of(plan, {Pass::forward, plan.num_micro_batches - 1, 0}).size();
  const auto out = std::back_inserter(text);
  for (std::size_t stage = 0; stage < plan.num_stages; ++stage) {
    std::vector<std::string> lane(static_cast<std::size_t>(slots.length), ".");
    for (std::size_t i = 0; i < plan.stages[stage].size(); ++i) {
      lane[static_cast<std::size_t>(slots.begin[stage][i])] = label_of(plan, plan.stages[stage][i]);
    }
    fmt::format_to(out, "  stage {} ", stage);
    for (const std::string& label : lane) fmt::format_to(out, " {:<{}}", label, width);
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  text += has_chunks ? "  activations kept at most, in chunks:" : "  activations kept at most:";
  for (std::size_t stage = 0; stage < plan.num_stages; ++stage) {
    fmt::format_to(out, " {}", most_kept(plan, stage));
  }
  fmt::format_to(
      out, "\n  bubble: {:.1f} % of the slots; ({}-1)/({}{}+{}-1) = {:.1f} %\n",
      100 * pipeline_bubble(plan), plan.num_stages,
      has_chunks ? fmt::format("{}*", plan.num_chunks) : "", plan.num_micro_batches,
      plan.num_stages,
      100 * pipeline_bubble_formula(plan.num_stages, plan.num_micro_batches, plan.num_chunks));
  return text;
}

std::vector<std::size_t> balanced_parts(const std::vector<double>& costs, std::size_t num_parts) {
  double low = 0;
  double high = 0;
  for (const double cost : costs) {
    low = std::max(low, cost);
    high += cost;
  }
  for (int i = 0; i < 60; ++i) {  // the lowest limit that is enough, by halving
    const double middle = (low + high) / 2;
    (num_parts_within(costs, middle) <= num_parts ? high : low) = middle;
  }
  std::vector<std::size_t> first{0};
  double filled = 0;
  for (std::size_t i = 0; i < costs.size(); ++i) {
    // Each part that is still to come needs a layer.
    const bool must_go_on = costs.size() - i == num_parts - first.size();
    const bool is_full = filled > 0 && filled + costs[i] > high * (1 + 1e-12);
    if (i > first.back() && first.size() < num_parts && (must_go_on || is_full)) {
      first.push_back(i);
      filled = 0;
    }
    filled += costs[i];
  }
  first.push_back(costs.size());
  return first;
}

}  // namespace lockstep::plan
