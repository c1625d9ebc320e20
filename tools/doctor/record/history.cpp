#include "tools/doctor/record/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "tools/doctor/record/event.h"
#include "tools/doctor/record/records.h"

namespace lockstep::record {

namespace {

constexpr std::size_t kMostKept = 4096;  // calls of a rank

const std::byte* begin_of(ConstTensorView memory) {
  return static_cast<const std::byte*>(memory.data);
}

bool overlap(ConstTensorView a, ConstTensorView b) {
  return begin_of(a) < begin_of(b) + b.num_bytes() && begin_of(b) < begin_of(a) + a.num_bytes();
}

}  // namespace

void Calls::begin(const trace::Call& call) {
  const bool is_message = call.peer >= 0;
  CallRecord record;
  record.operation = call.operation;
  record.sequence = call.sequence;
  record.is_message = is_message;
  record.is_averaging = call.detail == "sum" || call.detail == "average";
  record.text = call.operation;
  if (call.operation != "barrier") {
    record.text =
        fmt::format("{} of {} {}{}", call.operation, call.num_elements, to_string(call.dtype),
                    call.detail.empty() ? "" : fmt::format(" ({})", call.detail));
  }
  const std::uint64_t number = write_event("call", record, rank_of(call.group, call.rank));
  const std::lock_guard lock(mutex_);
  std::deque<Kept>& mine = by_rank_[{call.group, call.rank}];
  if (!call.is_async && !is_message) {  // it runs after those before it
    for (auto kept = mine.rbegin(); kept != mine.rend() && !kept->is_waited_for; ++kept) {
      kept->is_waited_for = true;
    }
  }
  mine.push_back({number, call.sequence, call.memory, call.bytes_sent, is_message, !call.is_async});
  if (mine.size() > kMostKept) mine.pop_front();
}

void Calls::end(const trace::Call& call) {
  write_event("done", {{"sequence", call.sequence}}, rank_of(call.group, call.rank));
}

void Calls::wait(const void* memory, std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  for (auto& [rank, mine] : by_rank_) {
    const auto found = std::find_if(mine.rbegin(), mine.rend(), [&](const Kept& kept) {
      return kept.memory.data == memory && kept.sequence == sequence;
    });
    if (found != mine.rend()) found->is_waited_for = true;
  }
}

void Calls::leave(std::uint32_t group, int rank) {
  const std::lock_guard lock(mutex_);
  by_rank_.erase({group, rank});
}

template <typename Visit>
void Calls::visit_since(const Rank& rank, std::uint64_t number, const Visit& visit) const {
  const std::lock_guard lock(mutex_);
  const auto mine = by_rank_.find({rank.group, rank.rank});
  if (mine == by_rank_.end()) return;
  const std::deque<Kept>& calls = mine->second;
  for (auto kept = calls.rbegin(); kept != calls.rend() && kept->number > number; ++kept) {
    visit(*kept);
  }
}

Calls::Touched Calls::touched_since(const Rank& rank, std::uint64_t number,
                                    ConstTensorView memory) const {
  Touched touched;
  if (memory.data == nullptr) return touched;
  visit_since(rank, number, [&](const Kept& kept) {
    if (!overlap(kept.memory, memory)) return;
    if (touched.number == 0) touched.number = kept.number;
    if (!kept.is_waited_for) touched.unfinished = kept.number;
  });
  return touched;
}

Calls::Traffic Calls::traffic_since(const Rank& rank, std::uint64_t number) const {
  Traffic traffic;
  visit_since(rank, number, [&](const Kept& kept) {
    traffic.sent_bytes += kept.sent_bytes;
    if (!kept.is_message) traffic.collective_bytes += kept.memory.num_bytes();
  });
  return traffic;
}

namespace {

constexpr std::size_t kMostPasses = 4096;  // passes that are remembered

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

// Resets a leaf, and remembers whether a gradient was lost.
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
  if (held.was_used) {  // a step came between, without clearing it
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

void Gradients::forget(const void* leaf) {
  const std::lock_guard lock(mutex_);
  leaves_.erase(leaf);
}

Pass Gradients::pass_of(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = passes_.find(number);
  return found == passes_.end() ? Pass() : found->second;
}

}  // namespace lockstep::record
