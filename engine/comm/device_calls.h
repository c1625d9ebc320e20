// What a communicator between threads does for tensors on CUDA devices: nothing is moved by the
// calling thread, everything is put on streams.
#pragma once

#include <optional>
#include <span>

#include "engine/comm/collective_call.h"
#include "engine/comm/transport/transport.h"
#include "engine/runtime/device_span.h"

namespace lockstep::comm {

inline bool is_on_cuda(const CollectiveCall& call) {
  return call.header.device == DeviceType::cuda;
}

// Chooses the stream of a call: the compute stream for a blocking one, which follows what the
// communicator put on the communication stream before (follows_async); the communication stream
// for an asynchronous one, from where the compute stream is now.
enum class FollowsAsync { no, yes };
void put_on_stream(CollectiveCall& call, Launch launch, FollowsAsync follows_async);
// The same for several calls on one device, which follow nothing but what the first one does.
void put_on_stream(std::span<CollectiveCall> calls, Launch launch, FollowsAsync follows_async);

// Puts down a rank's part in a collective (DeviceParts), and takes it back at the end.
// In traces, what the rank's stream does meanwhile is the collective.
class DevicePartScope {
 public:
  DevicePartScope(Transport& transport, const CollectiveCall& call);
  ~DevicePartScope();
  DevicePartScope(const DevicePartScope&) = delete;
  DevicePartScope& operator=(const DevicePartScope&) = delete;

 private:
  Transport& transport_;
  const CollectiveCall& call_;
  std::optional<runtime::DeviceSpan> on_comm_lane_;
  std::optional<runtime::DeviceSpan> exposed_;  // of a blocking call: nothing is computed meanwhile
};

// Inside the data phase: returns when the collective is enqueued for all ranks.
void enqueue_collective(Transport& transport, const CallHeader& call);

// After an error: returns when nothing on the call's stream uses its tensors any more.
void drain(const CollectiveCall& call) noexcept;

void send_from_device(Transport& transport, const CollectiveCall& call);
void receive_on_device(Transport& transport, const CollectiveCall& call);

}  // namespace lockstep::comm
