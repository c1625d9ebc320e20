#include "engine/parallel/ddp/packed_buffers.h"

#include <algorithm>

#include "engine/plan/buckets.h"

namespace lockstep::parallel {

const std::vector<Tensor>& PackedBuffers::pack(nn::Module& module) {
  constexpr std::size_t kMessageBytes = std::size_t{250} << 20;  // PyTorch's, for buffers
  const auto is_same = [](const Tensor& a, const Tensor& b) { return a.shares_memory_with(b); };
  const std::vector<Tensor> buffers = module.buffers();
  if (std::ranges::equal(buffers, buffers_, is_same)) return memories_;
  std::vector<plan::BucketParameter> sizes;
  std::vector<std::size_t> order;
  for (const Tensor& buffer : buffers) {
    order.push_back(sizes.size());
    sizes.push_back({buffer.num_elements(), buffer.dtype(), buffer.device()});
  }
  const plan::BucketPlan plan = plan::bucket_plan(sizes, order, {.byte_limits = {kMessageBytes}});
  memories_.clear();
  buffers_.resize(buffers.size());
  for (const plan::Bucket& bucket : plan.buckets) {
    const Tensor memory = Tensor::empty({bucket.num_elements}, bucket.dtype, bucket.device);
    for (const plan::BucketSlot& slot : bucket.slots) {
      const Tensor& buffer = buffers[slot.parameter];
      buffers_[slot.parameter] = memory.versioned_slice(slot.offset, buffer.shape());
      buffers_[slot.parameter].copy_from(buffer);
    }
    memories_.push_back(memory);
  }
  module.set_buffers(buffers_);
  return memories_;
}

void PackedBuffers::bump_versions() const {
  for (const Tensor& buffer : buffers_) buffer.bump_version();
}

void PackedBuffers::broadcast(nn::Module& module, comm::Communicator& communicator, int source) {
  for (const Tensor& memory : pack(module)) communicator.broadcast(memory, source);
  if (communicator.rank() != source) bump_versions();
}

}  // namespace lockstep::parallel
