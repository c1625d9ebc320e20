#include "engine/audit/losses.h"

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "engine/audit/event.h"

namespace lockstep::audit {
namespace {

constexpr std::size_t kMostPasses = 4096;  // that are remembered

struct Pass {
  std::vector<LossTaken> losses;
  std::vector<ReachedLeaf> leaves;
};

struct Leaf {
  LeafGradient gradient;
  bool was_used = false;  // by a step, since it was cleared
};

struct Ledger {
  std::mutex mutex;
  std::uint64_t num_passes = 0;
  std::map<std::uint64_t, Pass> passes;
  std::unordered_map<const void*, Leaf> leaves;  // by Variable::identity()
};

Ledger& ledger() {
  static auto& instance = *new Ledger;  // outlives every thread
  return instance;
}

thread_local std::vector<std::uint64_t> batch_rows;
thread_local int num_noted_scopes = 0;

double scalar_of(ConstTensorView value, double missing) {
  if (value.data == nullptr || value.num_elements != 1) return missing;
  if (value.dtype == DType::float32) return *static_cast<const float*>(value.data);
  if (value.dtype == DType::float64) return *static_cast<const double*>(value.data);
  return missing;
}

// What a leaf holds for the first time, or after it was cleared.
void begin_gradient(Leaf& leaf) {
  const bool is_lost = !leaf.was_used && !leaf.gradient.parts.empty();
  const bool was_discarded = is_lost || (!leaf.was_used && leaf.gradient.was_discarded);
  leaf = {};
  leaf.gradient.was_discarded = was_discarded;
}

}  // namespace

void note_rows(ConstTensorView x, std::size_t num_rows) {
  if (num_noted_scopes == 0) batch_rows = hash_rows(x, num_rows);
}

RowsNotedScope::RowsNotedScope() {
  ++num_noted_scopes;
}
RowsNotedScope::~RowsNotedScope() {
  --num_noted_scopes;
}

std::shared_ptr<const Loss> note_loss(std::size_t num_rows, Mean mean, ConstTensorView value,
                                      ConstTensorView labels) {
  auto loss = std::make_shared<Loss>();
  loss->num_rows = num_rows;
  loss->mean = mean;
  loss->value = scalar_of(value, std::numeric_limits<double>::quiet_NaN());
  if (batch_rows.size() == num_rows) loss->rows = batch_rows;
  if (labels.data != nullptr && labels.dtype == DType::int64 && labels.num_elements == num_rows) {
    const auto* first = static_cast<const std::int64_t*>(labels.data);
    loss->labels.assign(first, first + num_rows);
  }
  return loss;
}

std::uint64_t begin_pass() {
  const std::lock_guard lock(ledger().mutex);
  const std::uint64_t number = ++ledger().num_passes;
  ledger().passes[number];
  if (ledger().passes.size() > kMostPasses) ledger().passes.erase(ledger().passes.begin());
  return number;
}

void note_loss_backward(std::uint64_t pass, const std::shared_ptr<const Loss>& loss,
                        ConstTensorView upstream) {
  const std::lock_guard lock(ledger().mutex);
  ledger().passes[pass].losses.push_back({loss, scalar_of(upstream, 1)});
}

void note_arrival(std::uint64_t pass, const void* leaf, ConstTensorView gradient,
                  ConstTensorView before, std::size_t num_elements) {
  const Sketch sketch = sketch_of(gradient);
  const bool is_fresh = before.data == nullptr;
  const bool adds = !is_fresh && !is_zero(sketch_of(before));
  const std::uint64_t number = next_number();
  const std::lock_guard lock(ledger().mutex);
  Leaf& held = ledger().leaves[leaf];
  if (is_fresh) begin_gradient(held);
  if (held.was_used) {  // a step came between, and it was not cleared
    held.gradient = {};
    held.gradient.holds_used_one = adds;
    held.was_used = false;
  }
  std::vector<Part>& parts = held.gradient.parts;
  if (parts.empty()) held.gradient.begun = number;
  if (parts.empty() || parts.back().pass != pass) {
    parts.push_back({pass, {}});
    ledger().passes[pass].leaves.push_back({leaf, num_elements});
  }
  for (std::size_t i = 0; i < kSketchSize; ++i) parts.back().gradient[i] += sketch[i];
  held.gradient.arrived = number;
}

std::optional<LeafGradient> take_gradient(const void* leaf) {
  const std::lock_guard lock(ledger().mutex);
  const auto found = ledger().leaves.find(leaf);
  if (found == ledger().leaves.end() || found->second.was_used) return {};
  found->second.was_used = true;
  return found->second.gradient;
}

std::vector<LossTaken> losses_of(std::uint64_t pass) {
  const std::lock_guard lock(ledger().mutex);
  const auto found = ledger().passes.find(pass);
  return found == ledger().passes.end() ? std::vector<LossTaken>() : found->second.losses;
}

std::vector<ReachedLeaf> leaves_of(std::uint64_t pass) {
  const std::lock_guard lock(ledger().mutex);
  const auto found = ledger().passes.find(pass);
  return found == ledger().passes.end() ? std::vector<ReachedLeaf>() : found->second.leaves;
}

}  // namespace lockstep::audit
