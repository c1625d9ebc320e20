#include "engine/comm/device_calls.h"

#include "engine/comm/grouped/enqueue_order.h"

namespace lockstep::comm {
namespace {

// The pool does not give the call's memory to others before the communication stream is done.
void keep_memory_for(const CollectiveCall& call, runtime::Stream& comm) {
  for (const Tensor* tensor : {&call.input, &call.output}) {
    if (tensor->defined()) tensor->storage()->record_use(comm);
  }
}

}  // namespace

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
  keep_memory_for(call, comm);
}

void put_on_stream(std::span<CollectiveCall> calls, Launch launch, FollowsAsync follows_async) {
  put_on_stream(calls.front(), launch, follows_async);
  for (CollectiveCall& call : calls.subspan(1)) {
    call.stream = calls.front().stream;
    if (launch == Launch::async && is_on_cuda(call)) keep_memory_for(call, *call.stream);
  }
}

DevicePartScope::DevicePartScope(Transport& transport, const CollectiveCall& call)
    : transport_(transport), call_(call) {
  if (call.stream == nullptr) return;
  const char* name = name_of(call.header.operation);
  const std::size_t num_bytes = call.input.defined() ? call.input.num_bytes() : 0;
  on_comm_lane_.emplace(*call.stream, trace::Lane::comm, trace::Category::communication, name,
                        num_bytes);
  if (call.input.defined() && call.stream == &call.input.stream()) {
    exposed_.emplace(*call.stream, trace::Lane::compute, trace::Category::communication, name,
                     num_bytes);
  }
  transport.address_space()->device_parts().put_down(transport.rank(), call.header.sequence,
                                                     {call.stream, call.input, call.output});
}

DevicePartScope::~DevicePartScope() {
  if (call_.stream == nullptr) return;
  transport_.address_space()->device_parts().take_back(transport_.rank(), call_.header.sequence);
}

void enqueue_collective(Transport& transport, const CallHeader& call) {
  AddressSpace& ranks = *transport.address_space();
  if (transport.rank() == 0) ranks.device_parts().enqueue(call);
  ranks.finish_shared();
}

void drain(const CollectiveCall& call) noexcept {
  if (call.stream == nullptr) return;
  try {
    call.stream->synchronize();
  } catch (const Error&) {
    // The device is broken; its memory is nobody's again.
  }
}

void send_from_device(Transport& transport, const CollectiveCall& call) {
  runtime::Stream& compute = call.input.stream();
  DeviceLetter letter;
  letter.data = Tensor::empty(call.input.shape(), call.input.dtype(), call.input.device());
  if (call.stream != &compute) {
    // The pool gives out what earlier work of the compute stream may still use.
    call.stream->wait(compute.record());
    letter.data.storage()->record_use(*call.stream);
  }
  copy_on_stream(*call.stream, call.input.view(), letter.data.view());
  letter.written = call.stream->record();
  transport.address_space()->send_on_device(call.peer, call.header, std::move(letter));
}

void receive_on_device(Transport& transport, const CollectiveCall& call) {
  const DeviceLetter letter =
      transport.address_space()->receive_on_device(call.peer, call.header, call.timeout_seconds);
  const auto order = hold_enqueue_order();
  call.stream->wait(letter.written);
  letter.data.storage()->record_use(*call.stream);
  copy_on_stream(*call.stream, letter.data.view(), call.input.view());
}

}  // namespace lockstep::comm
