// From rows to gradients: which rows a loss was taken of, with what factor its backward pass began,
// and what reached each leaf. Kept until an optimizer steps (steps.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/audit/values.h"

namespace lockstep::audit {

// The batch that a model was called with, row by row. Of the calling thread, until the next one.
void note_rows(ConstTensorView x, std::size_t num_rows);

// Whether calls of models are the caller's own, or part of one that is noted already (replicas).
class RowsNotedScope {
 public:
  RowsNotedScope();
  ~RowsNotedScope();
  RowsNotedScope(const RowsNotedScope&) = delete;
  RowsNotedScope& operator=(const RowsNotedScope&) = delete;
};

enum class Mean { no, yes };  // or the sum over rows

struct Loss {
  std::uint64_t num_rows = 0;
  Mean mean = Mean::yes;
  double value = 0;                   // NaN where it is not known
  std::vector<std::uint64_t> rows;    // hashes; empty where they are not known
  std::vector<std::uint64_t> labels;  // of these rows, where they are int64
};

// A loss of so many rows, taken by the calling thread of the batch that it noted last.
std::shared_ptr<const Loss> note_loss(std::size_t num_rows, Mean mean, ConstTensorView value,
                                      ConstTensorView labels = {});

// --- a backward pass
std::uint64_t begin_pass();  // its number, 1 or more
// upstream: the gradient of the loss.
void note_loss_backward(std::uint64_t pass, const std::shared_ptr<const Loss>& loss,
                        ConstTensorView upstream);
// A gradient arrives at a leaf, where `before` is what the leaf holds: none, or what it adds to.
void note_arrival(std::uint64_t pass, const void* leaf, ConstTensorView gradient,
                  ConstTensorView before, std::size_t num_elements);

// --- what an optimizer asks
struct LossTaken {
  std::shared_ptr<const Loss> loss;
  double upstream = 1;
};
struct Part {
  std::uint64_t pass = 0;
  Sketch gradient{};  // of this pass alone
};
struct LeafGradient {
  std::vector<Part> parts;      // since the gradient was cleared
  std::uint64_t begun = 0;      // number of the first arrival: what its memory held before is past
  std::uint64_t arrived = 0;    // of the last one
  bool was_discarded = false;   // some of it was cleared before a step used it
  bool holds_used_one = false;  // added to a gradient that a step had used already
};
// What reached the leaf since the last step; marks it as used.
std::optional<LeafGradient> take_gradient(const void* leaf);
std::vector<LossTaken> losses_of(std::uint64_t pass);
struct ReachedLeaf {
  const void* leaf = nullptr;
  std::size_t num_elements = 0;
};
std::vector<ReachedLeaf> leaves_of(std::uint64_t pass);

}  // namespace lockstep::audit
