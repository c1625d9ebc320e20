#include "engine/parallel/ddp/replica_group.h"

#include "engine/core/error.h"
#include "engine/core/thread_context.h"
#include "engine/parallel/data_parallel/steps.h"
#include "engine/trace/span.h"

namespace lockstep::parallel {
namespace {

std::vector<Device> checked(const std::vector<Device>& devices) {
  require(!devices.empty(), ErrorCode::Usage, "replica group", "needs at least one device");
  std::vector<int> ids;
  for (const Device device : devices) {
    require(device.type == devices[0].type, ErrorCode::Device, "replica group",
            "all devices must be of one type, found {} and {}", to_string(devices[0]),
            to_string(device));
    ids.push_back(device.index);
  }
  devices_of(devices[0].type, ids);  // none stands twice
  return devices;
}

}  // namespace

ReplicaGroup::ReplicaGroup(const std::shared_ptr<nn::Module>& module,
                           const std::vector<Device>& devices, const DdpOptions& options,
                           plan::AllReducePlan plan)
    : options_(options),
      plan_(plan),
      devices_(checked(devices)),
      schedule_(
          devices.size() > 1 ? options.reducer.overlap : Overlap::after_backward, devices.size(),
          [this](std::size_t bucket, comm::Launch launch) { return reduce(bucket, launch); }) {
  require(module != nullptr, ErrorCode::Usage, "replica group", "there is no module to copy");
  require(
      options.unused == Unused::error, ErrorCode::Usage, "ddp",
      "one thread that drives all ranks cannot find unused parameters; give each rank a thread");
  require_on_device(*module, devices[0]);
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    modules_.push_back(rank == 0 ? module : module->copy_on(devices[rank]));
    buckets_.push_back(std::make_unique<GradBuckets>(
        modules_[rank]->named_parameters(), options.reducer_options().bucket_byte_limits,
        [this, rank](std::size_t parameter) { on_ready(rank, parameter); }));
    if (!options.reducer.order.empty()) buckets_.back()->build(options.reducer.order);
  }
  was_rebuilt_ = !options.reducer.order.empty();
}

void ReplicaGroup::run_backward(
    const std::function<void(nn::Module& replica, std::size_t rank)>& backward) {
  for (std::size_t rank = 0; rank < size(); ++rank) {
    run_rank(rank, [&](nn::Module& replica) { backward(replica, rank); });
  }
}

void ReplicaGroup::run_rank(std::size_t rank,
                            const std::function<void(nn::Module& replica)>& backward) {
  if (rank == 0) begin_step();
  ThreadContext context = thread_context();
  context.rank = static_cast<int>(rank);
  context.world_size = static_cast<int>(size());
  context.issue = Issue::by_caller;
  {
    const ThreadContextScope scope(context);
    const trace::TrackScope track(devices()[rank].index);
    backward(*modules_[rank]);
    buckets_[rank]->require_complete(context.rank);
  }
  if (rank + 1 < size()) return;
  schedule_.reduce_rest();
  schedule_.wait();
  if (options_.reducer.rebuild == Rebuild::once && !was_rebuilt_) rebuild_in_ready_order();
}

void ReplicaGroup::broadcast_buffers() {
  buffers_.resize(size());
  std::vector<std::vector<Tensor>> of_ranks;
  for (std::size_t rank = 0; rank < size(); ++rank) {
    of_ranks.push_back(buffers_[rank].pack(*modules_[rank]));
    if (rank > 0) buffers_[rank].bump_versions();
  }
  for (std::size_t i = 0; i < of_ranks[0].size(); ++i) {
    std::vector<Tensor> memories;
    for (const std::vector<Tensor>& of_rank : of_ranks) memories.push_back(of_rank[i]);
    communicator_.broadcast(memories, 0);
  }
}

void ReplicaGroup::begin_step() {
  if (modules_[0]->is_training() && options_.buffers == DdpOptions::Buffers::broadcast) {
    broadcast_buffers();
  }
  // A step that ended in an error may have left all-reduces at work on the buckets.
  schedule_.wait();
  for (const auto& buckets : buckets_) {
    buckets->require_slots_fit();
    buckets->begin_backward();
  }
  full_.assign(buckets_[0]->num_buckets(), std::vector<std::shared_ptr<runtime::Event>>(size()));
  schedule_.begin_backward(buckets_[0]->num_buckets());
}

void ReplicaGroup::on_ready(std::size_t rank, std::size_t parameter) {
  const std::size_t bucket = buckets_[rank]->collect(parameter);
  if (!buckets_[rank]->is_full(bucket)) return;
  full_[bucket][rank] = buckets_[rank]->memory(bucket).stream().record();
  schedule_.add_full(bucket);
}

comm::Work ReplicaGroup::reduce(std::size_t bucket, comm::Launch launch) {
  std::vector<Tensor> memories;
  for (const auto& buckets : buckets_) memories.push_back(buckets->memory(bucket));
  comm::CollectiveOptions options;
  options.op = options_.reducer.op;
  options.launch = launch;
  options.plan = plan_;
  const bool starts_early = launch == comm::Launch::async;
  return communicator_.all_reduce(
      memories, options, starts_early ? comm::StartEvents(full_[bucket]) : comm::StartEvents());
}

void ReplicaGroup::rebuild_in_ready_order() {
  const std::vector<std::size_t> order = buckets_[0]->ready_order();
  for (const auto& buckets : buckets_) buckets->build(order);
  was_rebuilt_ = true;
}

}  // namespace lockstep::parallel
