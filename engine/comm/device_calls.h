// Orders a communicator's calls on CUDA tensors with other work: the calls are put on streams, and
// the calling thread moves no data itself.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/comm/communicator.h"

namespace lockstep::comm {

// The streams of one rank's calls, in their order.
class StreamOrder {
 public:
  // Returns the stream of a call on these tensors; output may be undefined. A blocking call goes to
  // the compute stream, after the asynchronous calls before it; an asynchronous one to the
  // communication stream, after `start`, or, without one, the compute stream's present work.
  runtime::Stream& place(const Tensor& input, const Tensor& output, Launch launch,
                         const std::shared_ptr<runtime::Event>& start = nullptr);

 private:
  bool has_async_work_ = false;  // on the communication stream, not followed by a blocking call
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

}  // namespace lockstep::comm
