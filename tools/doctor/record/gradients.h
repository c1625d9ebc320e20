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
#include "tools/doctor/record/values.h"

namespace lockstep::record {

struct Loss {
  std::uint64_t num_rows = 0;
  bool is_mean = true;                // or the sum over rows
  double value = 0;                   // NaN where it is not known
  std::vector<std::uint64_t> rows;    // hashes; empty where they are not known
  std::vector<std::uint64_t> labels;  // of these rows, where they are int64
};

struct LossTaken {
  std::shared_ptr<const Loss> loss;
  double upstream = 1;  // the gradient of the loss
};

// The share of a leaf's gradient that one backward pass added.
struct Part {
  std::uint64_t pass = 0;
  Sketch gradient{};
};

struct LeafGradient {
  std::vector<Part> parts;      // since the gradient was cleared
  std::uint64_t begun = 0;      // number of the first arrival: what its memory held before is past
  std::uint64_t arrived = 0;    // of the last one
  bool was_discarded = false;   // some of it was cleared before a step used it
  bool holds_used_one = false;  // added to a gradient that a step had used already
};

struct ReachedLeaf {
  const void* leaf = nullptr;
  std::size_t num_elements = 0;
};

// Any thread may use it at any time.
class Gradients {
 public:
  // The batch that the calling thread's next losses are taken of, row by row.
  static void begin_batch(ConstTensorView x, std::size_t num_rows);
  static std::shared_ptr<const Loss> take_loss(const trace::Loss& told);
  void begin_backward(std::uint64_t pass, std::shared_ptr<const Loss> loss,
                      ConstTensorView upstream);
  void arrive(const trace::LeafGradient& told);

  // What reached the leaf since the last step; marks it as used.
  std::optional<LeafGradient> take_gradient(const void* leaf);
  std::vector<LossTaken> losses_of(std::uint64_t pass) const;
  std::vector<ReachedLeaf> leaves_of(std::uint64_t pass) const;

 private:
  struct Pass {
    std::vector<LossTaken> losses;
    std::vector<ReachedLeaf> leaves;
  };
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
