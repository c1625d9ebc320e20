// Replicas are copies: at every step all ranks have the same weights, learning rate and statistics.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "tools/doctor/judges.h"

namespace lockstep::doctor {

namespace {

struct Difference {
  std::size_t rank = 0;
  std::size_t first = 0;  // parameter
  std::size_t count = 0;  // number of parameters
};

// The first rank whose weights differ from rank 0's before this step.
std::optional<Difference> find_difference(const Training& training, std::size_t number) {
  const StepRecord& zero = training.step(0, number);
  for (std::size_t rank = 1; rank < training.world_size(); ++rank) {
    const StepRecord& other = training.step(rank, number);
    Difference difference{rank, 0, 0};
    for (std::size_t p = 0; p < zero.parameters.size(); ++p) {
      if (zero.parameters[p].before == other.parameters[p].before) continue;
      if (difference.count++ == 0) difference.first = p;
    }
    if (difference.count > 0) return difference;
  }
  return {};
}

std::optional<Finding> judge_beginning(const Training& training, const Difference& difference) {
  const StepRecord& zero = training.step(0, 0);
  return Finding{
      "same-weights",
      fmt::format("before its first step rank {} has other weights than rank 0 in {} of {} "
                  "parameters, first in {}",
                  difference.rank, difference.count, zero.parameters.size(),
                  name_of(zero, difference.first)),
      "all ranks begin with the same weights, else the average of their gradients is the gradient "
      "of none of their models",
      "broadcast rank 0's weights before the first step (Ddp does so when it is made), and change "
      "none afterwards"};
}

// Judges the first step that made the weights differ although gradients and rates were the same.
std::optional<Finding> judge_later(const Training& training, std::size_t number,
                                   const Difference& difference) {
  const StepRecord& zero = training.step(0, number);
  const StepRecord& before = training.step(0, number - 1);
  const StepRecord& other = training.step(difference.rank, number - 1);
  const bool had_same_gradients = std::ranges::equal(
      before.parameters, other.parameters, {}, &ParameterRecord::used, &ParameterRecord::used);
  if (!had_same_gradients || before.learning_rate != other.learning_rate) return {};
  return Finding{
      "same-weights",
      fmt::format("before step {} rank {} has other weights than rank 0 in {} of {} parameters, "
                  "first in {}; in the step before they were the same, and so were gradients and "
                  "learning rate",
                  zero.step, difference.rank, difference.count, zero.parameters.size(),
                  name_of(zero, difference.first)),
      "the same step on the same weights gives the same weights on all ranks",
      "options of the optimizers that differ between ranks, or code that writes weights on some "
      "ranks only"};
}

std::optional<Finding> judge_rates(const Training& training) {
  for (std::size_t number = 0; number < training.num_steps(); ++number) {
    const double first = training.step(0, number).learning_rate;
    for (std::size_t rank = 1; rank < training.world_size(); ++rank) {
      const double other = training.step(rank, number).learning_rate;
      if (other == first) continue;
      return Finding{
          "same-rate",
          fmt::format("in step {} rank {} steps with learning rate {:g} and rank 0 with {:g}",
                      training.step(0, number).step, rank, other, first),
          "all ranks make the same step, so with one learning rate",
          "a rate that depends on the rank, or a variable that several ranks scale"};
    }
  }
  return {};
}

std::optional<Finding> judge_buffers(const Training& training) {
  for (std::size_t number = 0; number < training.num_steps(); ++number) {
    const std::vector<std::uint64_t>& first = training.step(0, number).buffers;
    for (std::size_t rank = 1; rank < training.world_size(); ++rank) {
      const std::vector<std::uint64_t>& other = training.step(rank, number).buffers;
      if (other == first || other.size() != first.size()) continue;
      return Finding{
          "same-buffers",
          fmt::format("in step {} the running statistics of {} layers enter forward on rank {} "
                      "with other values than on rank 0",
                      training.step(0, number).step, first.size(), rank),
          "buffers follow one rank, as the weights do, else each rank's model evaluates "
          "differently, and what is saved depends on who saves",
          "broadcast the buffers before each forward pass (DdpOptions::Buffers::broadcast), or "
          "before evaluating and saving"};
    }
  }
  return {};
}

std::optional<Finding> judge_equality(const Training& training) {
  for (std::size_t number = 0; number < training.num_steps(); ++number) {
    const std::optional<Difference> difference = find_difference(training, number);
    if (!difference) continue;
    return number == 0 ? judge_beginning(training, *difference)
                       : judge_later(training, number, *difference);
  }
  return {};
}

}  // namespace

void judge_weights(const std::vector<Training>& trainings, Findings& findings) {
  for (const Training& training : trainings) {
    if (!training.exchanges()) continue;
    add(judge_rates(training), findings);
    add(judge_buffers(training), findings);
    add(judge_equality(training), findings);
  }
}

namespace {

std::optional<Finding> judge_wrapping(const WrappedRecord& wrapped) {
  if (wrapped.inside.empty()) return {};
  return Finding{
      "wrapped-once",
      fmt::format("rank {} wraps a model in DistributedDataParallel that is wrapped in {} "
                  "already",
                  wrapped.origin.rank, wrapped.inside.front()),
      "a model has one wrapper, else every gradient is reduced twice and names begin with "
      "\"module.module.\"",
      "wrap the model that was made, not the wrapper"};
}

std::optional<Finding> judge_move(const Records& records, const MovedRecord& moved) {
  if (!is_wrapped(records, moved.origin, moved.leaves)) return {};
  return Finding{
      "wrapped-last",
      fmt::format("rank {} moves {} parameters from {} to {} after it has wrapped them in "
                  "DistributedDataParallel",
                  moved.origin.rank, moved.leaves.size(), moved.from, moved.to),
      "buckets and hooks are made for the parameters as they are when the model is wrapped",
      "move the model to its device first, then wrap it"};
}

// True if every name of a is a name of b without its prefix.
bool are_names_without_prefix(const std::vector<std::string>& a,
                              const std::vector<std::string>& b) {
  return std::ranges::all_of(a, [&](const std::string& name) {
    return std::ranges::any_of(
        b, [&](const std::string& longer) { return longer.ends_with("." + name); });
  });
}

std::optional<Finding> judge_loading(const LoadedRecord& loaded) {
  if (loaded.missing.empty() || loaded.unexpected.empty()) return {};
  if (!are_names_without_prefix(loaded.missing, loaded.unexpected) &&
      !are_names_without_prefix(loaded.unexpected, loaded.missing)) {
    return {};
  }
  return Finding{
      "loaded-weights",
      fmt::format("rank {} loads {} of {} tensors into {}: the state has \"{}\", and the model "
                  "asks for \"{}\"",
                  loaded.origin.rank, loaded.loaded, loaded.loaded + loaded.missing.size(),
                  loaded.model, loaded.unexpected.front(), loaded.missing.front()),
      "a state dict fills all parameters and buffers of the model",
      "names that differ by a prefix: save the wrapped module's own state dict, or take the "
      "prefix off (strip_prefix); Strict::yes makes this an error"};
}

std::optional<Finding> judge_saving(const Records& records) {
  std::map<std::pair<std::string, std::string>, std::set<int>> writers;  // keyed by group and path
  for (const SavedRecord& saved : records.saved) {
    if (saved.origin.group.empty()) continue;
    std::set<int>& ranks = writers[{saved.origin.group, saved.path}];
    ranks.insert(saved.origin.rank);
    if (ranks.size() != 2) continue;
    const std::size_t slash = saved.path.rfind('/');
    return Finding{"one-writer",
                   fmt::format("ranks {} and {} both write the file {}", *ranks.begin(),
                               *ranks.rbegin(), saved.path.substr(slash + 1)),
                   "a file has one writer: replicas are equal, so one rank saves for all",
                   "save on rank 0 only, and let the others wait (barrier) before they read it"};
  }
  return {};
}

std::optional<Finding> judge_members(const Records& records) {
  if (records.members.empty()) return {};
  const MemberRecord& member = records.members.front();
  return Finding{
      "kept-members",
      fmt::format("forward() of {} on {} changes {} bytes of its plain members, in a replica that "
                  "is gone after the step ({} times in all)",
                  member.module, member.device, member.num_bytes, records.members.size()),
      "what forward() must remember is kept by the model that was wrapped",
      "register a buffer (that of the first replica is kept), or count outside of forward()"};
}

}  // namespace

void judge_models(const Records& records, Findings& findings) {
  add_first(records.wrapped, judge_wrapping, findings);
  add_first(
      records.moved, [&](const MovedRecord& moved) { return judge_move(records, moved); },
      findings);
  add_first(records.loaded, judge_loading, findings);
  add(judge_saving(records), findings);
  add(judge_members(records), findings);
}

}  // namespace lockstep::doctor
