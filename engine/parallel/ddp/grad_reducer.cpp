#include "engine/parallel/ddp/grad_reducer.h"

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
      schedule_(
          communicator.world_size() > 1 ? options.overlap : Overlap::after_backward, 1,
          [this](std::size_t bucket, comm::Launch launch) { return reduce(bucket, launch); }) {}

void GradReducer::begin_forward() {
  // A backward pass that ended in an error may have left all-reduces at work on the buckets.
  schedule_.wait();
  buckets_.require_slots_fit();
  forward_was_synchronizing_ = synchronizing_;
  in_backward_ = false;
}

void GradReducer::begin_backward() {
  in_backward_ = true;
  ++num_backward_passes_;
  buckets_.begin_backward();
  schedule_.begin_backward(buckets_.num_buckets());
  on_backward_end([this] { finish(); });
}

void GradReducer::on_ready(std::size_t index) {
  const std::lock_guard lock(mutex_);
  if (!forward_was_synchronizing_) return;
  require(synchronizing_, ErrorCode::State, "no_sync",
          "the forward pass ran outside no_sync and this backward pass runs inside; put both "
          "inside to add gradients up locally");
  if (!in_backward_) begin_backward();
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "gradient ready",
                         buckets_.slot(index).num_bytes());
  const std::size_t bucket = buckets_.collect(index);
  if (buckets_.is_full(bucket)) schedule_.add_full(bucket);
}

comm::Work GradReducer::reduce(std::size_t bucket, comm::Launch launch) {
  const Tensor& memory = buckets_.memory(bucket);
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "launch bucket",
                         memory.num_bytes());
  comm::CollectiveOptions options;
  options.op = options_.op;
  options.launch = launch;
  ++num_all_reduces_;
  return communicator_.all_reduce(memory, options);
}

void GradReducer::finish() {
  in_backward_ = false;
  buckets_.require_complete(communicator_.rank());
  schedule_.reduce_rest();
  {
    trace::ScopedSpan span(trace::Lane::host, trace::Category::communication,
                           "wait for all-reduce");
    runtime::DeviceSpan on_device(buckets_.memory(0).stream(), trace::Lane::compute,
                                  trace::Category::communication, "wait for all-reduce");
    schedule_.wait();
  }
  if (options_.rebuild == Rebuild::once && !was_rebuilt_) rebuild_in_ready_order();
}

void GradReducer::rebuild_in_ready_order() {
  // Rank 0's order is used by all: buckets must be the same everywhere.
  const std::vector<std::int64_t> order(buckets_.ready_order().begin(),
                                        buckets_.ready_order().end());
  const Tensor shared = Tensor::from(order, {order.size()}, Device{});
  communicator_.broadcast(shared, 0).wait();
  const std::vector<std::int64_t> agreed = shared.to_vector<std::int64_t>();
  buckets_.build(std::vector<std::size_t>(agreed.begin(), agreed.end()));
  was_rebuilt_ = true;
}

}  // namespace lockstep::parallel
