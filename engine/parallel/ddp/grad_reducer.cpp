#include "engine/parallel/ddp/grad_reducer.h"

#include <algorithm>

#include "engine/autograd/backward_pass.h"
#include "engine/core/error.h"
#include "engine/trace/deferred_flows.h"
#include "engine/trace/span.h"

namespace lockstep::parallel {
namespace {

// Slots begin on cache lines, so that no two parameters share one.
constexpr std::size_t kSlotAlignment = 64;

}  // namespace

GradReducer::GradReducer(std::vector<nn::NamedParameter> parameters,
                         comm::Communicator& communicator, const GradReducerOptions& options)
    : communicator_(communicator), options_(options) {
  for (nn::NamedParameter& parameter : parameters) {
    if (parameter.second.requires_grad()) parameters_.push_back(std::move(parameter));
  }
  require(!parameters_.empty(), ErrorCode::Usage, "ddp",
          "DistributedDataParallel is not needed when a module doesn't have any parameters that "
          "require a gradient");
  build(plan::reverse_order(parameters_.size()));
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    hooks_.push_back(
        parameters_[i].second.on_grad_ready([this, i](const Variable&) { on_ready(i); }));
  }
}

GradReducer::~GradReducer() {
  for (std::size_t i = 0; i < hooks_.size(); ++i) {
    parameters_[i].second.remove_grad_hook(hooks_[i]);
    parameters_[i].second.set_grad_slot({});
  }
}

void GradReducer::build(const std::vector<std::size_t>& order) {
  std::vector<plan::BucketParameter> sizes;
  for (const nn::NamedParameter& parameter : parameters_) {
    const Variable& variable = parameter.second;
    sizes.push_back({variable.value().num_elements(), variable.dtype(), variable.device()});
  }
  plan::BucketOptions options;
  options.byte_limits = options_.bucket_byte_limits;
  options.alignment_bytes = kSlotAlignment;
  options.order = plan::BucketOrder::by_last_parameter;
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
    buckets_.push_back({memory, 0, {}});
  }
  places_ = std::move(places);
}

void GradReducer::begin_forward() {
  // A backward pass that ended in an error may have left all-reduces at work on the buckets.
  for (const Bucket& bucket : buckets_) bucket.work.wait();
  require_slots_fit();
  forward_was_synchronizing_ = synchronizing_;
  in_backward_ = false;
}

// Whoever replaces a parameter's tensor takes its slot away.
void GradReducer::require_slots_fit() {
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

void GradReducer::begin_backward() {
  in_backward_ = true;
  next_bucket_ = 0;
  ready_order_.clear();
  ++num_backward_passes_;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    buckets_[i].num_pending = plan_.buckets[i].slots.size();
    buckets_[i].work = {};
  }
  on_backward_end([this] { finish(); });
}

void GradReducer::on_ready(std::size_t index) {
  const std::lock_guard lock(mutex_);
  if (!forward_was_synchronizing_) return;
  require(synchronizing_, ErrorCode::State, "no_sync",
          "the forward pass ran outside no_sync and this backward pass runs inside; put both "
          "inside to add gradients up locally");
  if (!in_backward_) begin_backward();
  Place& place = places_[index];
  Variable& variable = parameters_[index].second;
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "gradient ready",
                         place.slot.num_bytes());
  if (!variable.grad().shares_memory_with(place.slot)) {
    place.slot.copy_from(variable.grad());
    variable.set_grad(place.slot);
  }
  span.pass_flow(flow_of(place.bucket));
  ready_order_.push_back(index);
  --buckets_[place.bucket].num_pending;
  // Nothing is left to hide the last bucket behind: finish() takes it, in the calling thread.
  if (options_.overlap == Overlap::during_backward && communicator_.world_size() > 1) {
    launch_full_buckets(buckets_.size() - 1, comm::Launch::async);
  }
}

void GradReducer::launch_full_buckets(std::size_t end, comm::Launch launch) {
  while (next_bucket_ < end && buckets_[next_bucket_].num_pending == 0) {
    const std::uint64_t flow = flow_of(next_bucket_);
    Bucket& bucket = buckets_[next_bucket_++];
    trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "launch bucket",
                           bucket.memory.num_bytes());
    span.pass_flow(flow);
    comm::CollectiveOptions options;
    options.op = options_.op;
    options.launch = launch;
    options.trace_flow = flow;
    bucket.work = communicator_.all_reduce(bucket.memory, options);
    ++num_all_reduces_;
    num_reduced_bytes_ += bucket.memory.num_bytes();
  }
}

// The arrow from a bucket's gradients over its all-reduce to the optimizer.
std::uint64_t GradReducer::flow_of(std::size_t bucket) const {
  return trace::flow_id(communicator_.rank(), num_backward_passes_, bucket);
}

void GradReducer::finish() {
  in_backward_ = false;
  if (ready_order_.size() < parameters_.size()) {
    std::string names;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (std::find(ready_order_.begin(), ready_order_.end(), i) == ready_order_.end()) {
        names += (names.empty() ? "" : ", ") + parameters_[i].first;
      }
    }
    fail(ErrorCode::State, "ddp",
         "rank {}: these parameters got no gradient in this backward pass: {}; every parameter "
         "must take part in the loss",
         communicator_.rank(), names);
  }
  launch_full_buckets(buckets_.size(), comm::Launch::blocking);
  {
    trace::ScopedSpan span(trace::Lane::host, trace::Category::communication,
                           "wait for all-reduce");
    for (const Bucket& bucket : buckets_) bucket.work.wait();
  }
  for (std::size_t i = 0; i < buckets_.size(); ++i) trace::defer_flow(flow_of(i));
  if (options_.rebuild == Rebuild::once && !was_rebuilt_) rebuild_in_ready_order();
}

void GradReducer::rebuild_in_ready_order() {
  // Rank 0's order is used by all: buckets must be the same everywhere.
  std::vector<std::int64_t> order(ready_order_.begin(), ready_order_.end());
  const Tensor shared = Tensor::from(order, {order.size()}, parameters_[0].second.device());
  communicator_.broadcast(shared, 0).wait();
  const std::vector<std::int64_t> agreed = shared.to_vector<std::int64_t>();
  build(std::vector<std::size_t>(agreed.begin(), agreed.end()));
  was_rebuilt_ = true;
}

}  // namespace lockstep::parallel
