// What one rank knows of its group: who called what last, and whether the group has failed. Any
// thread may use it.
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/comm/collective_call.h"
#include "engine/core/error.h"

namespace lockstep::comm {

class GroupState {
 public:
  // members: the ranks that announce their calls to this one, itself among them.
  GroupState(int world_size, std::vector<int> members);

  void announced(int rank, const CallHeader& call);
  // The rank's call with this sequence number, if it has come. A rank is at most one call ahead.
  std::optional<CallHeader> call_of(int rank, std::uint64_t sequence) const;
  // See Transport::describe_missing.
  std::string describe_missing(std::uint64_t sequence) const;

  // The first failure stays; says whether this is it.
  bool fail(const Error& error);
  bool has_failed() const { return has_failed_.load(std::memory_order_acquire); }
  void throw_if_failed() const;
  // REQUIRES: has_failed().
  Error failure() const;

 private:
  struct Calls {
    std::array<CallHeader, 2> latest;       // by sequence number % 2
    std::array<std::uint64_t, 2> number{};  // sequence number + 1; 0: none yet
  };

  mutable std::mutex mutex_;
  std::vector<int> members_;
  std::vector<Calls> calls_;
  std::optional<Error> failure_;
  std::atomic<bool> has_failed_{false};
};

}  // namespace lockstep::comm
