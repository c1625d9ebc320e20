#include "engine/comm/single_thread_group/single_thread_group.h"

#include "engine/comm/device_calls.h"
#include "engine/comm/single_thread_group/device_group.h"
#include "engine/core/error.h"
#include "engine/trace/span.h"

namespace lockstep::comm {

SingleThreadGroup::SingleThreadGroup(std::vector<Device> devices)
    : devices_(std::move(devices)), group_(std::make_unique<DeviceGroup>()) {
  require(!devices_.empty(), ErrorCode::Usage, "single-thread group", "needs at least one device");
  for (const Device device : devices_) {
    require(device.type == devices_[0].type, ErrorCode::Device, "single-thread group",
            "all devices must be of one type, found {} and {}", to_string(devices_[0]),
            to_string(device));
    runtime::logical_device(device);  // throws with the devices that exist
  }
}

SingleThreadGroup::~SingleThreadGroup() = default;

Work SingleThreadGroup::all_reduce(std::span<const Tensor> buffers,
                                   const CollectiveOptions& options, StartEvents start) {
  require_reducible(Operation::all_reduce, buffers[0].dtype(), options.op);
  CallHeader call;
  call.operation = Operation::all_reduce;
  call.op = options.op;
  call.plan = options.plan;
  return submit(call, buffers, options.launch, start);
}

Work SingleThreadGroup::broadcast(std::span<const Tensor> buffers, int root, Launch launch) {
  CallHeader call;
  call.operation = Operation::broadcast;
  call.root = root;
  return submit(call, buffers, launch, {});
}

Work SingleThreadGroup::submit(const CallHeader& call, std::span<const Tensor> buffers,
                               Launch launch, StartEvents start) {
  CallHeader header = call;
  header.num_elements = buffers[0].num_elements();
  header.dtype = buffers[0].dtype();
  header.device = devices_[0].type;
  trace::ScopedSpan span(trace::Lane::comm, trace::Category::communication, name_of(call.operation),
                         buffers[0].num_bytes());
  const bool on_comm_streams = launch == Launch::async && header.device == DeviceType::cuda;
  std::vector<GroupMember> members;
  for (std::size_t rank = 0; rank < buffers.size(); ++rank) {
    runtime::LogicalDevice& device = buffers[rank].logical_device();
    runtime::Stream& compute = device.compute_stream();
    runtime::Stream& comm = device.comm_stream();
    if (on_comm_streams) {
      comm.wait(start.empty() ? compute.record() : start[rank]);
      buffers[rank].storage()->record_use(comm);
    } else if (has_async_work_) {
      compute.wait(comm.record());
    }
    buffers[rank].bump_version();
    members.push_back({on_comm_streams ? &comm : &compute, buffers[rank], {}});
  }
  has_async_work_ = on_comm_streams;
  group_->enqueue(header, members);
  if (!on_comm_streams) return {};
  std::vector<StreamPoint> points;
  for (const GroupMember& member : members) {
    points.push_back({member.stream->record(), &member.stream->device().compute_stream()});
  }
  return Work(std::make_shared<EnqueuedWork>(std::move(points)));
}

}  // namespace lockstep::comm
