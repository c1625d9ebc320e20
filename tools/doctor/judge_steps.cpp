// The optimizer steps every parameter that has a gradient, with this step's gradient, at the
// schedule's rate, on the rank's own device.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>

#include "tools/doctor/judges.h"

namespace lockstep::doctor {
namespace {

std::optional<Finding> judge_freshness(const Trainer& trainer) {
  for (const StepRecord* step : trainer.steps) {
    for (std::size_t p = 0; p < step->parameters.size(); ++p) {
      if (!step->parameters[p].holds_used_one) continue;
      return Finding{
          "fresh-gradients",
          fmt::format("in step {} rank {} adds the gradient of {} to the one that the step before "
                      "has already used",
                      step->step, step->origin.rank, name_of(*step, p)),
          "a step uses the gradients of its own batches",
          "call zero_grad() before the first backward pass of each step"};
    }
  }
  return {};
}

using Leaves = std::map<std::uint64_t, std::set<std::uint64_t>>;  // keyed by process

std::optional<Finding> judge_reach(const Trainer& trainer, const Leaves& stepped) {
  for (const StepRecord* step : trainer.steps) {
    std::size_t num_left = 0;
    std::uint64_t num_elements = 0;
    for (const auto& [leaf, elements] : step->reached) {
      if (stepped.at(step->origin.process).contains(leaf)) continue;
      ++num_left;
      num_elements += elements;
    }
    if (num_left == 0) continue;
    return Finding{
        "stepped-parameters",
        fmt::format("in step {} of rank {} backward gives a gradient to {} parameters with {} "
                    "elements that no optimizer ever steps; this one steps {}",
                    step->step, step->origin.rank, num_left, num_elements, step->parameters.size()),
        "an optimizer steps every parameter that is trained",
        "how the list of parameters is made: a test of a type or a name that most do not pass, or "
        "a copy of the model"};
  }
  return {};
}

std::optional<Finding> judge_emptiness(const Trainer& trainer) {
  const auto has_none = [](const StepRecord* step) {
    return std::ranges::none_of(step->parameters, &ParameterRecord::has_gradient);
  };
  if (trainer.steps.size() < 2 || !std::ranges::all_of(trainer.steps, has_none)) return {};
  const StepRecord& first = trainer.first();
  return Finding{
      "stepped-parameters",
      fmt::format("rank {} makes {} steps, and none of the {} parameters ever has a gradient",
                  first.origin.rank, trainer.steps.size(), first.parameters.size()),
      "an optimizer steps every parameter that is trained",
      "an optimizer that was given the parameters of another model, or gradients that are cleared "
      "before the step"};
}

// Finds a schedule whose base is its own result.
std::optional<Finding> judge_schedules(const Records& records) {
  std::map<std::tuple<std::uint64_t, std::string, int>, std::vector<const ScheduleRecord*>> asked;
  for (const ScheduleRecord& schedule : records.schedules) {
    const Origin& by = schedule.origin;
    asked[{by.process, by.group, by.rank}].push_back(&schedule);
  }
  for (const auto& [by, all] : asked) {
    std::size_t num_fed_back = 0;
    for (std::size_t i = 0; i + 1 < all.size(); ++i) {
      const ScheduleRecord &now = *all[i], &next = *all[i + 1];
      if (next.step == now.step + 1 && next.base == now.rate && now.rate != now.base) {
        ++num_fed_back;
      }
      if (num_fed_back < 2) continue;
      return Finding{
          "scheduled-rate",
          fmt::format("at step {} rank {} gives the schedule the base rate {:g}, which is what the "
                      "schedule made of {:g} at step {}; it began with {:g}",
                      next.step, std::get<2>(by), next.base, now.base, now.step, all[0]->base),
          "a schedule scales the base rate of the run, once",
          "keep the base rate beside the optimizer, and do not read it back from there; the same "
          "for a rate that is scaled by the number of ranks"};
    }
  }
  return {};
}

int index_of(const std::string& device) {
  const std::size_t colon = device.find(':');
  return colon == std::string::npos ? 0 : std::atoi(device.c_str() + colon + 1);
}

// On a host with L ranks, a rank must use one of the first L devices.
std::optional<Finding> judge_index(const Records& records, const StepRecord& step) {
  const auto process = records.processes.find(step.origin.process);
  if (process == records.processes.end()) return {};
  const auto& [rank, local_rank, local_world_size] = process->second;
  if (!rank || !local_rank || !local_world_size) return {};
  const int index = index_of(step.device);
  if (index < *local_world_size || index != *rank || *rank == *local_rank) return {};
  return Finding{
      "own-device",
      fmt::format("rank {} computes on {}, but it is local rank {} of the {} ranks of its host, "
                  "which have the devices 0 to {}",
                  *rank, step.device, *local_rank, *local_world_size, *local_world_size - 1),
      "a rank takes the device of its local rank: devices are counted on each host",
      "use LOCAL_RANK (launch::device_of_rank) and not RANK as the device's index"};
}

// Identifies a rank's process or host, within which ranks can share a device.
std::string host_of(const Records& records, const StepRecord& step) {
  const auto process = records.processes.find(step.origin.process);
  if (process == records.processes.end()) return {};
  const auto& [rank, local_rank, local_world_size] = process->second;
  if (!rank || !local_world_size || *local_world_size == 0) {
    return fmt::format("process {}", step.origin.process);
  }
  return fmt::format("host {}", *rank / *local_world_size);
}

std::optional<Finding> judge_devices(const Records& records, const Training& training) {
  std::map<std::pair<std::string, std::string>, std::size_t> ranks_on;
  for (std::size_t rank = 0; rank < training.world_size(); ++rank) {
    const StepRecord& step = training.step(rank, 0);
    if (std::optional<Finding> finding = judge_index(records, step)) return finding;
    if (!step.device.starts_with("cpu")) continue;  // the number of GPUs is not recorded
    const auto [place, is_new] = ranks_on.try_emplace({host_of(records, step), step.device}, rank);
    if (is_new) continue;
    return Finding{
        "own-device",
        fmt::format("ranks {} and {} both compute on {}", place->second, rank, step.device),
        "each rank of a host has a device of its own",
        "the index of the device: a device without one is always number 0"};
  }
  return {};
}

}  // namespace

void judge_steps(const Records& records, const std::vector<Trainer>& trainers,
                 const std::vector<Training>& trainings, Findings& findings) {
  Leaves stepped;
  for (const Trainer& trainer : trainers) {
    for (const StepRecord* step : trainer.steps) {
      std::set<std::uint64_t>& leaves = stepped[step->origin.process];
      for (const ParameterRecord& parameter : step->parameters) leaves.insert(parameter.leaf);
    }
  }
  add_first(trainers, judge_freshness, findings);
  add_first(
      trainers, [&](const Trainer& trainer) { return judge_reach(trainer, stepped); }, findings);
  add_first(trainers, judge_emptiness, findings);
  add(judge_schedules(records), findings);
  add_first(
      trainings,
      [&](const Training& training) {
        return training.exchanges() ? judge_devices(records, training) : std::nullopt;
      },
      findings);
}

}  // namespace lockstep::doctor
