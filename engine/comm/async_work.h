// The state behind the Work of an asynchronous call that a communicator's thread carries out, on
// the CPU, or enqueues, on CUDA.
#pragma once

#include <exception>
#include <memory>

#include "engine/comm/transport/transport.h"
#include "engine/comm/work.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm {

class AsyncWork final : public WorkState {
 public:
  // transport: knows who is missing when somebody waits in vain; may be none.
  AsyncWork(const CallHeader& call, std::weak_ptr<const Transport> transport)
      : call_(call), transport_(std::move(transport)) {}

  // Says that the operation is done, with its error or with nullptr. on_device: it is enqueued and
  // done when this event passes; wait() hands the event to the waiter.
  void finish(std::exception_ptr error, StreamPoint on_device = {});

  bool is_done() const override {
    return is_done_.load() != 0 && (on_device_.event == nullptr || on_device_.event->has_passed());
  }
  void wait(std::optional<double> timeout_seconds) const override;
  // Without the error: for the next operation in line.
  void wait_until_issued() const { wait_until_done({}); }

 private:
  // Recorded as exposed communication. False when the deadline has passed.
  bool wait_until_done(runtime::Deadline deadline) const;

  CallHeader call_;
  std::weak_ptr<const Transport> transport_;  // for error messages
  runtime::WaitWord is_done_{0};
  std::exception_ptr error_;
  StreamPoint on_device_;
};

}  // namespace lockstep::comm
