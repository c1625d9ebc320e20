// Remembers what happened before an optimizer's step (recorder.cpp): the calls of communicators,
// among which a step looks for those that moved its gradients, and the way from rows to gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/trace/observer.h"
#include "tools/doctor/record/event.h"
#include "tools/doctor/record/records.h"

namespace lockstep::record {

// Writes calls as events "call" and "done", and keeps the latest. Any thread may use it.
class Calls {
 public:
  // Before the call is carried out.
  void begin(const trace::Call& call);
  // After the call, if it had no error.
  void end(const trace::Call& call);
  // At Work::wait() of an asynchronous call.
  void wait(const void* memory, std::uint64_t sequence);
  // When a rank's communicator is destroyed.
  void leave(std::uint32_t group, int rank);

  // The calls since an event that moved some memory of the rank.
  struct Touched {
    std::uint64_t number = 0;      // of the last call; 0: none
    std::uint64_t unfinished = 0;  // of a call without a wait; 0: none
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
  // Calls visit(call) for the calls since an event, the last one first.
  template <typename Visit>
  void visit_since(const Rank& rank, std::uint64_t number, const Visit& visit) const;

  mutable std::mutex mutex_;
  std::map<std::pair<std::uint32_t, int>, std::deque<Kept>> by_rank_;  // by group and rank
};

struct LeafGradient {
  std::vector<PartRecord> parts;  // since the gradient was cleared
  std::uint64_t begun = 0;        // number of the first arrival; the memory's earlier use is past
  std::uint64_t arrived = 0;      // of the last one
  bool was_discarded = false;     // some of it was cleared before a step used it
  bool holds_used_one = false;    // true if it was added to a gradient that a step had used
};

// The losses from which a backward pass began, and the leaves that it reached, with their elements.
struct Pass {
  std::vector<LossRecord> losses;
  std::map<const void*, std::size_t> leaves;
};

// Remembers from which rows a loss was taken, with what factor its backward pass began, and which
// gradients reached each leaf. Any thread may use it.
class Gradients {
 public:
  // Names the batch, row by row, for the calling thread's next losses.
  static void begin_batch(ConstTensorView x, std::size_t num_rows);
  static std::shared_ptr<const LossRecord> take_loss(const trace::Loss& told);
  void begin_backward(std::uint64_t pass, const LossRecord& loss, ConstTensorView upstream);
  void arrive(const trace::LeafGradient& told);

  // Returns the gradients that reached the leaf since the last step; marks them as used.
  std::optional<LeafGradient> take_gradient(const void* leaf);
  // Call it if the leaf has no gradient: whatever arrived at its address belonged to another leaf.
  void forget(const void* leaf);
  Pass pass_of(std::uint64_t number) const;

 private:
  struct Leaf {
    LeafGradient gradient;
    bool was_used = false;  // true if a step has used it since it was cleared
  };

  Pass& pass(std::uint64_t number);
  static void clear(Leaf& leaf);

  mutable std::mutex mutex_;
  std::map<std::uint64_t, Pass> passes_;
  std::unordered_map<const void*, Leaf> leaves_;  // by Variable::identity()
};

}  // namespace lockstep::record
