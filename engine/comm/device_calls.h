// Orders a communicator's calls on CUDA tensors with other work: the calls are put on streams, and
// the calling thread moves no data itself.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "engine/comm/collective_call.h"
#include "engine/runtime/device_span.h"

namespace lockstep::comm {

// Chooses the stream of a call. A blocking call goes to the compute stream, after the work that the
// communicator put on the communication stream before (follows_async); an asynchronous one goes to
// the communication stream, after the compute stream's present work.
enum class FollowsAsync { no, yes };
void put_on_stream(CollectiveCall& call, Launch launch, FollowsAsync follows_async);

// While it lives, traces show the stream's work as the collective.
class DeviceSpans {
 public:
  explicit DeviceSpans(const CollectiveCall& call);

 private:
  std::optional<runtime::DeviceSpan> on_comm_lane_;
  std::optional<runtime::DeviceSpan> exposed_;  // for a blocking call
};

// An operation that is enqueued on streams.
class EnqueuedWork final : public WorkState {
 public:
  // throw_if_failed: rethrows the group's error, if there is one; may be empty.
  explicit EnqueuedWork(std::vector<StreamPoint> ends, std::function<void()> throw_if_failed = {})
      : ends_(std::move(ends)), throw_if_failed_(std::move(throw_if_failed)) {}

  bool is_done() const override {
    return std::ranges::all_of(ends_, [](const StreamPoint& p) { return p.event->has_passed(); });
  }
  void wait() const override {
    if (throw_if_failed_) throw_if_failed_();
    for (const StreamPoint& end : ends_) end.waiter->wait(end.event);
  }

 private:
  std::vector<StreamPoint> ends_;
  std::function<void()> throw_if_failed_;
};

// After an error: returns when the call's stream no longer uses its tensors.
void drain(const CollectiveCall& call) noexcept;

}  // namespace lockstep::comm
