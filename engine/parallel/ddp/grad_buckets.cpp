#include "engine/parallel/ddp/grad_buckets.h"

#include <algorithm>
#include <utility>

#include "engine/core/error.h"

namespace lockstep::parallel {

BucketSchedule::BucketSchedule(Overlap overlap, std::size_t num_replicas, Reduce reduce)
    : overlap_(overlap), num_replicas_(num_replicas), reduce_(std::move(reduce)) {}

void BucketSchedule::begin_backward(std::size_t num_buckets) {
  buckets_.clear();
  buckets_.resize(num_buckets);
  next_bucket_ = 0;
}

void BucketSchedule::add_full(std::size_t bucket) {
  ++buckets_[bucket].num_full;
  // Nothing is left to hide the last bucket behind: reduce_rest() takes it.
  if (overlap_ == Overlap::during_backward) reduce_full(buckets_.size() - 1, comm::Launch::async);
}

// In order, up to bucket `end`.
void BucketSchedule::reduce_full(std::size_t end, comm::Launch launch) {
  while (next_bucket_ < end && buckets_[next_bucket_].num_full == num_replicas_) {
    const std::size_t bucket = next_bucket_++;
    buckets_[bucket].work = reduce_(bucket, launch);
  }
}

void BucketSchedule::reduce_rest() {
  reduce_full(buckets_.size(), comm::Launch::blocking);
}

// Each is waited for once: the compute stream need not wait twice.
void BucketSchedule::wait() {
  for (Bucket& bucket : buckets_) std::exchange(bucket.work, {}).wait();
}

namespace {

// Slots begin on cache lines, so that no two parameters share one.
constexpr std::size_t kSlotAlignment = 64;

}  // namespace

GradBuckets::GradBuckets(std::vector<nn::NamedParameter> parameters,
                         std::vector<std::size_t> bucket_byte_limits,
                         const std::function<void(std::size_t parameter)>& on_ready)
    : bucket_byte_limits_(std::move(bucket_byte_limits)) {
  for (nn::NamedParameter& parameter : parameters) {
    if (parameter.second.requires_grad()) parameters_.push_back(std::move(parameter));
  }
  require(!parameters_.empty(), ErrorCode::Usage, "ddp",
          "DistributedDataParallel is not needed when a module doesn't have any parameters that "
          "require a gradient");
  build(plan::reverse_order(parameters_.size()));
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    hooks_.push_back(
        parameters_[i].second.on_grad_ready([on_ready, i](const Variable&) { on_ready(i); }));
  }
}

GradBuckets::~GradBuckets() {
  for (std::size_t i = 0; i < hooks_.size(); ++i) {
    parameters_[i].second.remove_grad_hook(hooks_[i]);
    parameters_[i].second.set_grad_slot({});
  }
}

void GradBuckets::build(const std::vector<std::size_t>& order) {
  std::vector<plan::BucketParameter> sizes;
  for (const nn::NamedParameter& parameter : parameters_) {
    const Variable& variable = parameter.second;
    sizes.push_back({variable.value().num_elements(), variable.dtype(), variable.device()});
  }
  plan::BucketOptions options;
  options.byte_limits = bucket_byte_limits_;
  options.alignment_bytes = kSlotAlignment;
  plan_ = plan::bucket_plan(sizes, order, options);

  buckets_.clear();
  std::vector<Place> places(parameters_.size());
  for (const plan::Bucket& bucket : plan_.buckets) {
    const Tensor memory = Tensor::zeros({bucket.num_elements}, bucket.dtype, bucket.device);
    for (const plan::BucketSlot& slot : bucket.slots) {
      Variable& variable = parameters_[slot.parameter].second;
      Place& place = places[slot.parameter];
      place = {buckets_.size(), memory.slice(slot.offset, variable.shape())};
      if (variable.grad().defined()) {
        place.slot.copy_from(variable.grad());
        variable.set_grad(place.slot);
      }
      variable.set_grad_slot(place.slot);
    }
    buckets_.push_back({memory, 0});
  }
  places_ = std::move(places);
}

void GradBuckets::require_slots_fit() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    auto& [name, variable] = parameters_[i];
    const Tensor& slot = places_[i].slot;
    if (variable.grad_slot().shares_memory_with(slot)) continue;
    require(variable.device() == slot.device() && variable.dtype() == slot.dtype(),
            ErrorCode::Device, "ddp",
            "parameter {} was {} on {} when the module was wrapped and is {} on {} now; move the "
            "module first, then wrap it again",
            name, to_string(slot.dtype()), to_string(slot.device()), to_string(variable.dtype()),
            to_string(variable.device()));
    variable.set_grad_slot(slot);
  }
}

void GradBuckets::begin_backward() {
  ready_order_.clear();
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    buckets_[i].num_pending = plan_.buckets[i].slots.size();
  }
}

std::size_t GradBuckets::collect(std::size_t parameter) {
  Place& place = places_[parameter];
  Variable& variable = parameters_[parameter].second;
  if (!variable.grad().shares_memory_with(place.slot)) {
    place.slot.copy_from(variable.grad());
    variable.set_grad(place.slot);
  }
  return count(parameter);
}

std::size_t GradBuckets::collect_unused(std::size_t parameter) {
  if (parameters_[parameter].second.grad().defined()) return collect(parameter);
  places_[parameter].slot.fill(0);
  return count(parameter);
}

std::size_t GradBuckets::count(std::size_t parameter) {
  ready_order_.push_back(parameter);
  const std::size_t bucket = places_[parameter].bucket;
  --buckets_[bucket].num_pending;
  return bucket;
}

void GradBuckets::require_complete(int rank) const {
  if (ready_order_.size() == parameters_.size()) return;
  std::string names;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (std::ranges::find(ready_order_, i) == ready_order_.end()) {
      names += (names.empty() ? "" : ", ") + parameters_[i].first;
    }
  }
  fail(ErrorCode::State, "ddp",
       "rank {}: these parameters got no gradient in this backward pass: {}; every parameter must "
       "take part in the loss; or set DdpOptions::unused to Unused::find",
       rank, names);
}

}  // namespace lockstep::parallel
