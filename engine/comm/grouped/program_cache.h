// The programs of the plans that a group of ranks has needed so far.
#pragma once

#include <map>
#include <tuple>

#include "engine/comm/collective_call.h"

namespace lockstep::comm {

template <typename Program>
class ProgramCache {
 public:
  // The program of the call's plan (plan_of), from make() where it is not there yet. It stays until
  // the next call.
  template <typename Make>
  const Program& find_or_make(const CallHeader& call, std::size_t num_elements, const Make& make) {
    const Key key{call.operation, call.plan, call.root, num_elements};
    const auto found = programs_.find(key);
    if (found != programs_.end()) return found->second;
    if (programs_.size() >= kMaxPrograms) programs_.clear();
    return programs_.emplace(key, make()).first->second;
  }

 private:
  // More different sizes than this are worked out again.
  static constexpr std::size_t kMaxPrograms = 1024;

  using Key = std::tuple<Operation, plan::AllReducePlan, int, std::size_t>;
  std::map<Key, Program> programs_;
};

}  // namespace lockstep::comm
