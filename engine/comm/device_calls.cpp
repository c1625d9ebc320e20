#include "engine/comm/device_calls.h"

namespace lockstep::comm {

void put_on_stream(CollectiveCall& call, Launch launch, FollowsAsync follows_async) {
  if (!is_on_cuda(call)) return;
  runtime::LogicalDevice& device = call.input.logical_device();
  runtime::Stream& compute = device.compute_stream();
  runtime::Stream& comm = device.comm_stream();
  if (launch == Launch::blocking) {
    call.stream = &compute;
    if (follows_async == FollowsAsync::yes) compute.wait(comm.record());
    return;
  }
  call.stream = &comm;
  comm.wait(compute.record());
  // Keeps the pool from reusing this memory before the communication stream is done.
  for (const Tensor* tensor : {&call.input, &call.output}) {
    if (tensor->defined()) tensor->storage()->record_use(comm);
  }
}

DeviceSpans::DeviceSpans(const CollectiveCall& call) {
  if (call.stream == nullptr) return;
  const char* name = name_of(call.header.operation);
  const std::size_t num_bytes = call.input.defined() ? call.input.num_bytes() : 0;
  on_comm_lane_.emplace(*call.stream, trace::Lane::comm, trace::Category::communication, name,
                        num_bytes);
  if (call.input.defined() && call.stream == &call.input.stream()) {
    exposed_.emplace(*call.stream, trace::Lane::compute, trace::Category::communication, name,
                     num_bytes);
  }
}

void drain(const CollectiveCall& call) noexcept {
  if (call.stream == nullptr) return;
  try {
    call.stream->synchronize();
  } catch (const Error&) {
    // The device is broken; nothing uses its memory any more.
  }
}

}  // namespace lockstep::comm
