#include "engine/parallel/ddp/grad_reducer.h"

#include <algorithm>
#include <utility>

#include "engine/autograd/backward.h"
#include "engine/core/error.h"
#include "engine/runtime/device_span.h"
#include "engine/trace/span.h"

namespace lockstep::parallel {

GradReducer::GradReducer(std::vector<nn::NamedParameter> parameters,
                         comm::Communicator& communicator, const GradReducerOptions& options)
    : communicator_(communicator),
      options_(options),
      buckets_(std::move(parameters), options.bucket_byte_limits,
               [this](std::size_t parameter) { on_ready(parameter); }),
      schedule_(communicator.world_size() > 1 ? options.overlap : Overlap::after_backward, 1,
                [this](std::size_t bucket, comm::Launch launch) { return reduce(bucket, launch); }),
      unused_(find_unused_parameters(options.unused, buckets_)) {
  if (options.unused == Unused::find) options_.rebuild = Rebuild::never;
  if (options.order.empty()) return;
  buckets_.build(options.order);
  was_rebuilt_ = true;
}

void GradReducer::register_hook(std::shared_ptr<CommHook> hook) {
  require(hook != nullptr, ErrorCode::Usage, "register_comm_hook", "there is no hook");
  require(hook_ == nullptr, ErrorCode::Usage, "register_comm_hook",
          "a hook was registered before; a wrapped module can have one");
  hook_ = std::move(hook);
}

void GradReducer::set_round(int source, double factor) {
  source_ = source;
  factor_ = factor;
}

void GradReducer::begin_forward() {
  // A backward pass that ended in an error may have left all-reduces at work on the buckets.
  schedule_.wait();
  buckets_.require_slots_fit();
  forward_was_synchronizing_ = synchronizing_;
  in_backward_ = false;
  moments_.forward = Clock::now();
}

void GradReducer::end_forward(const Variable& output) {
  if (unused_) unused_->look_at(output);
  moments_.forward_end = Clock::now();
}

void GradReducer::begin_backward() {
  in_backward_ = true;
  ++num_backward_passes_;
  moments_.backward = Clock::now();
  moments_.first_bucket = {};
  buckets_.begin_backward();
  schedule_.begin_backward(buckets_.num_buckets());
  on_backward_end([this] { finish(); });
  if (!unused_) return;
  for (const std::size_t parameter : unused_->begin_backward()) {
    start_if_full(buckets_.collect_unused(parameter));
  }
}

void GradReducer::start_if_full(std::size_t bucket) {
  if (buckets_.is_full(bucket)) schedule_.add_full(bucket);
}

void GradReducer::on_ready(std::size_t index) {
  const std::lock_guard lock(mutex_);
  if (!forward_was_synchronizing_) {
    if (unused_) unused_->add_used_locally(index);
    return;
  }
  if (unused_) unused_->add_used(index);
  require(synchronizing_, ErrorCode::State, "no_sync",
          "the forward pass ran outside no_sync and this backward pass runs inside; put both "
          "inside to add gradients up locally");
  if (!in_backward_) begin_backward();
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "gradient ready",
                         buckets_.slot(index).num_bytes());
  start_if_full(buckets_.collect(index));
}

comm::Work GradReducer::reduce(std::size_t bucket, comm::Launch launch) {
  const Tensor& memory = buckets_.memory(bucket);
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "launch bucket",
                         memory.num_bytes());
  if (factor_ != 1) memory.scale_(factor_);
  return start(bucket_at(bucket, memory), launch);
}

comm::Work GradReducer::start(const GradBucket& bucket, comm::Launch launch) {
  ++num_all_reduces_;
  if (moments_.first_bucket == Clock::time_point{}) moments_.first_bucket = Clock::now();
  if (hook_) return hook_->start(bucket, communicator_, launch);
  return communicator_.all_reduce(bucket.memory, {.op = options_.op, .launch = launch});
}

GradBucket GradReducer::bucket_at(std::size_t index, const Tensor& memory) const {
  GradBucket bucket{index, memory, {}};
  if (!hook_) return bucket;
  for (const plan::BucketSlot& slot : buckets_.plan().buckets[index].slots) {
    const Variable& parameter = buckets_.parameters()[slot.parameter].second;
    bucket.gradients.push_back(memory.slice(slot.offset, parameter.shape()));
  }
  return bucket;
}

void GradReducer::reduce_zeros() {
  for (std::size_t i = 0; i < buckets_.num_buckets(); ++i) {
    const GradBucket zeros = bucket_at(i, Tensor::zeros_like(buckets_.memory(i)));
    start(zeros, comm::Launch::blocking).wait();
    if (hook_) hook_->finish(zeros);
  }
  if (unused_) unused_->answer(communicator_);
  rebuild_in_ready_order();
}

void GradReducer::finish() {
  in_backward_ = false;
  moments_.backward_end = Clock::now();
  buckets_.require_complete(communicator_.rank());
  schedule_.reduce_rest();
  {
    trace::ScopedSpan span(trace::Lane::host, trace::Category::communication,
                           "wait for all-reduce");
    runtime::DeviceSpan on_device(buckets_.memory(0).stream(), trace::Lane::compute,
                                  trace::Category::communication, "wait for all-reduce");
    schedule_.wait();
    for (std::size_t i = 0; hook_ && i < buckets_.num_buckets(); ++i) {
      hook_->finish(bucket_at(i, buckets_.memory(i)));
    }
  }
  moments_.end = Clock::now();
  if (unused_) unused_->end_backward(communicator_);
  rebuild_in_ready_order();
}

void GradReducer::rebuild_in_ready_order() {
  if (options_.rebuild == Rebuild::never || was_rebuilt_) return;
  // One rank's order is used by all: buckets must be the same everywhere.
  std::vector<std::int64_t> order(buckets_.ready_order().begin(), buckets_.ready_order().end());
  order.resize(buckets_.parameters().size());  // a rank without rows has none
  const Tensor shared = Tensor::from(order, {order.size()}, Device{});
  communicator_.broadcast(shared, source_).wait();
  const std::vector<std::int64_t> agreed = shared.to_vector<std::int64_t>();
  buckets_.build(std::vector<std::size_t>(agreed.begin(), agreed.end()));
  was_rebuilt_ = true;
}

}  // namespace lockstep::parallel
