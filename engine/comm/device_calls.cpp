#include "engine/comm/device_calls.h"

namespace lockstep::comm {

runtime::Stream& StreamOrder::place(const Tensor& input, const Tensor& output, Launch launch,
                                    const std::shared_ptr<runtime::Event>& start) {
  runtime::LogicalDevice& device = input.logical_device();
  runtime::Stream& compute = device.compute_stream();
  runtime::Stream& comm = device.comm_stream();
  const bool follows_async = std::exchange(has_async_work_, launch == Launch::async);
  if (launch == Launch::blocking) {
    if (follows_async) compute.wait(comm.record());
    return compute;
  }
  comm.wait(start != nullptr ? start : compute.record());
  // Keeps the pool from reusing this memory before the communication stream is done.
  for (const Tensor* tensor : {&input, &output}) {
    if (tensor->defined()) tensor->storage()->record_use(comm);
  }
  return comm;
}

}  // namespace lockstep::comm
