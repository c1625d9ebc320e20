// From rows to gradients: which rows a loss was taken of, with what factor its backward pass began,
// and what reached each leaf. Kept until an optimizer steps (recorder.cpp).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/trace/observer.h"
#include "tools/doctor/record/records.h"

namespace lockstep::record {

struct LeafGradient {
  std::vector<PartRecord> parts;  // since the gradient was cleared
  std::uint64_t begun = 0;      // number of the first arrival: what its memory held before is past
  std::uint64_t arrived = 0;    // of the last one
  bool was_discarded = false;   // some of it was cleared before a step used it
  bool holds_used_one = false;  // added to a gradient that a step had used already
};

// The losses that a backward pass began with, and the leaves that it reached, with their elements.
struct Pass {
  std::vector<LossRecord> losses;
  std::map<const void*, std::size_t> leaves;
};

// Any thread may use it at any time.
class Gradients {
 public:
  // The batch that the calling thread's next losses are taken of, row by row.
  static void begin_batch(ConstTensorView x, std::size_t num_rows);
  static std::shared_ptr<const LossRecord> take_loss(const trace::Loss& told);
  void begin_backward(std::uint64_t pass, const LossRecord& loss, ConstTensorView upstream);
  void arrive(const trace::LeafGradient& told);

  // What reached the leaf since the last step; marks it as used.
  std::optional<LeafGradient> take_gradient(const void* leaf);
  Pass pass_of(std::uint64_t number) const;

 private:
  struct Leaf {
    LeafGradient gradient;
    bool was_used = false;  // by a step, since it was cleared
  };

  Pass& pass(std::uint64_t number);
  static void clear(Leaf& leaf);

  mutable std::mutex mutex_;
  std::map<std::uint64_t, Pass> passes_;
  std::unordered_map<const void*, Leaf> leaves_;  // by Variable::identity()
};

}  // namespace lockstep::record
