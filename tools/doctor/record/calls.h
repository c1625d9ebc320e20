// The calls of communicators, as events "call" and "done", and the last ones in memory: a step asks
// which of them moved its gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "engine/trace/observer.h"
#include "tools/doctor/record/event.h"

namespace lockstep::record {

// Any thread may use it at any time.
class Calls {
 public:
  // Before the call is carried out.
  void begin(const trace::Call& call);
  // After it was, without an error.
  void end(const trace::Call& call);
  // Work::wait() of an asynchronous call.
  void wait(const void* memory, std::uint64_t sequence);
  // A rank's communicator is gone.
  void leave(std::uint32_t group, int rank);

  // The calls that moved some memory of the rank since an event.
  struct Touched {
    std::uint64_t number = 0;      // of the last call; 0: none
    std::uint64_t unfinished = 0;  // of a call that nobody has waited for; 0: none
  };
  Touched touched_since(const Rank& rank, std::uint64_t number, ConstTensorView memory) const;

  // Bytes of the rank's calls since an event.
  struct Traffic {
    std::uint64_t collective_bytes = 0;  // of their buffers
    std::uint64_t sent_bytes = 0;        // by send
  };
  Traffic traffic_since(const Rank& rank, std::uint64_t number) const;

 private:
  struct Kept {
    std::uint64_t number = 0;
    std::uint64_t sequence = 0;
    ConstTensorView memory;
    std::uint64_t sent_bytes = 0;
    bool is_message = false;  // send or recv
    bool is_waited_for = true;
  };
  // Calls visit(call) for those since an event, the last one first.
  template <typename Visit>
  void visit_since(const Rank& rank, std::uint64_t number, const Visit& visit) const;

  mutable std::mutex mutex_;
  std::map<std::pair<std::uint32_t, int>, std::deque<Kept>> by_rank_;  // by group and rank
};

}  // namespace lockstep::record
