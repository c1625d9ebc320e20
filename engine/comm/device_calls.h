// How the calls of a communicator on CUDA tensors are ordered with other work: they are put on
// streams, and the calling thread moves nothing itself.
#pragma once

#include <optional>

#include "engine/comm/collective_call.h"
#include "engine/runtime/device_span.h"

namespace lockstep::comm {

// Chooses the stream of a call: the compute stream for a blocking one, which follows what the
// communicator put on the communication stream before (follows_async); the communication stream
// for an asynchronous one, from where the compute stream is now.
enum class FollowsAsync { no, yes };
void put_on_stream(CollectiveCall& call, Launch launch, FollowsAsync follows_async);

// While it lives, what the call's stream does is the collective in traces.
class DeviceSpans {
 public:
  explicit DeviceSpans(const CollectiveCall& call);

 private:
  std::optional<runtime::DeviceSpan> on_comm_lane_;
  std::optional<runtime::DeviceSpan> exposed_;  // of a blocking call: nothing is computed meanwhile
};

// After an error: returns when nothing on the call's stream uses its tensors any more.
void drain(const CollectiveCall& call) noexcept;

}  // namespace lockstep::comm
