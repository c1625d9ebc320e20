// Models: wrapped once, after they were moved; loaded with all their weights; saved by one rank.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "tools/doctor/judges.h"

namespace lockstep::doctor {
namespace {

std::optional<Finding> judge_wrapping(const Records& records) {
  for (const WrappedRecord& wrapped : records.wrapped) {
    if (wrapped.inside.empty()) continue;
    return Finding{
        "wrapped-once",
        fmt::format("rank {} wraps a model in DistributedDataParallel that is wrapped in {} "
                    "already",
                    wrapped.origin.rank, wrapped.inside.front()),
        "a model has one wrapper, else every gradient is reduced twice and names begin with "
        "\"module.module.\"",
        "wrap the model that was made, not the wrapper"};
  }
  return {};
}

bool holds_any(const WrappedRecord& wrapped, const std::vector<std::uint64_t>& leaves) {
  return std::ranges::any_of(leaves, [&](std::uint64_t leaf) {
    return std::ranges::find(wrapped.leaves, leaf) != wrapped.leaves.end();
  });
}

std::optional<Finding> judge_moves(const Records& records) {
  for (const MovedRecord& moved : records.moved) {
    for (const WrappedRecord& wrapped : records.wrapped) {
      const bool is_inside = wrapped.origin.process == moved.origin.process &&
                             wrapped.origin.number < moved.origin.number &&
                             (!wrapped.gone || *wrapped.gone > moved.origin.number);
      if (!is_inside || !holds_any(wrapped, moved.leaves)) continue;
      return Finding{
          "wrapped-last",
          fmt::format("rank {} moves {} parameters from {} to {} after it has wrapped them in "
                      "DistributedDataParallel",
                      moved.origin.rank, moved.leaves.size(), moved.from, moved.to),
          "buckets and hooks are made for the parameters as they are when the model is wrapped",
          "move the model to its device first, then wrap it"};
    }
  }
  return {};
}

// Whether every name of a is one of b's with something in front.
bool are_names_without_prefix(const std::vector<std::string>& a,
                              const std::vector<std::string>& b) {
  return std::ranges::all_of(a, [&](const std::string& name) {
    return std::ranges::any_of(
        b, [&](const std::string& longer) { return longer.ends_with("." + name); });
  });
}

std::optional<Finding> judge_loading(const Records& records) {
  for (const LoadedRecord& loaded : records.loaded) {
    if (loaded.missing.empty() || loaded.unexpected.empty()) continue;
    if (!are_names_without_prefix(loaded.missing, loaded.unexpected) &&
        !are_names_without_prefix(loaded.unexpected, loaded.missing)) {
      continue;
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
  return {};
}

std::optional<Finding> judge_saving(const Records& records) {
  std::map<std::pair<std::string, std::string>, std::set<int>> writers;  // by group and path
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
  add(judge_wrapping(records), findings);
  add(judge_moves(records), findings);
  add(judge_loading(records), findings);
  add(judge_saving(records), findings);
  add(judge_members(records), findings);
}

}  // namespace lockstep::doctor
