#include "tools/doctor/record/gradients.h"

#include <limits>
#include <utility>

#include "tools/doctor/record/event.h"

namespace lockstep::record {
namespace {

constexpr std::size_t kMostPasses = 4096;  // that are remembered

thread_local std::vector<std::uint64_t> batch_rows;

double scalar_of(ConstTensorView value, double missing) {
  if (value.data == nullptr || value.num_elements != 1) return missing;
  if (value.dtype == DType::float32) return *static_cast<const float*>(value.data);
  if (value.dtype == DType::float64) return *static_cast<const double*>(value.data);
  return missing;
}

}  // namespace

void Gradients::begin_batch(ConstTensorView x, std::size_t num_rows) {
  batch_rows = hash_rows(x, num_rows);
}

std::shared_ptr<const LossRecord> Gradients::take_loss(const trace::Loss& told) {
  auto loss = std::make_shared<LossRecord>();
  loss->num_rows = told.num_rows;
  loss->is_mean = told.is_mean;
  loss->value = scalar_of(told.value, std::numeric_limits<double>::quiet_NaN());
  if (batch_rows.size() == told.num_rows) loss->hashes = batch_rows;
  const ConstTensorView& labels = told.labels;
  if (labels.data != nullptr && labels.dtype == DType::int64 &&
      labels.num_elements == told.num_rows) {
    const auto* first = static_cast<const std::int64_t*>(labels.data);
    loss->labels.assign(first, first + told.num_rows);
  }
  return loss;
}

// REQUIRES: mutex_ held.
Pass& Gradients::pass(std::uint64_t number) {
  const auto [found, is_new] = passes_.try_emplace(number);
  if (is_new && passes_.size() > kMostPasses && found != passes_.begin()) {
    passes_.erase(passes_.begin());
  }
  return found->second;
}

void Gradients::begin_backward(std::uint64_t number, const LossRecord& loss,
                               ConstTensorView upstream) {
  const std::lock_guard lock(mutex_);
  pass(number).losses.push_back(loss);
  pass(number).losses.back().upstream = scalar_of(upstream, 1);
}

// Starts a leaf anew, and remembers whether a gradient was lost.
void Gradients::clear(Leaf& leaf) {
  const bool is_lost = !leaf.was_used && !leaf.gradient.parts.empty();
  const bool was_discarded = is_lost || (!leaf.was_used && leaf.gradient.was_discarded);
  leaf = {};
  leaf.gradient.was_discarded = was_discarded;
}

void Gradients::arrive(const trace::LeafGradient& told) {
  const Sketch sketch = sketch_of(told.gradient);
  const bool is_fresh = told.before.data == nullptr;
  const bool adds = !is_fresh && !is_zero(sketch_of(told.before));
  const std::uint64_t number = next_number();
  const std::lock_guard lock(mutex_);
  Leaf& held = leaves_[told.leaf];
  if (is_fresh) clear(held);
  if (held.was_used) {  // a step came between, and it was not cleared
    held.gradient = {};
    held.gradient.holds_used_one = adds;
    held.was_used = false;
  }
  std::vector<PartRecord>& parts = held.gradient.parts;
  if (parts.empty()) held.gradient.begun = number;
  if (parts.empty() || parts.back().pass != told.pass) {
    parts.push_back({told.pass, {}});
    pass(told.pass).leaves[told.leaf] = told.num_elements;
  }
  for (std::size_t i = 0; i < kSketchSize; ++i) parts.back().gradient[i] += sketch[i];
  held.gradient.arrived = number;
}

std::optional<LeafGradient> Gradients::take_gradient(const void* leaf) {
  const std::lock_guard lock(mutex_);
  const auto found = leaves_.find(leaf);
  if (found == leaves_.end() || found->second.was_used) return {};
  found->second.was_used = true;
  return found->second.gradient;
}

Pass Gradients::pass_of(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = passes_.find(number);
  return found == passes_.end() ? Pass() : found->second;
}

}  // namespace lockstep::record
