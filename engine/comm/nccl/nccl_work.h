// The state behind the Work of a call over NCCL.
#pragma once

#include <exception>
#include <memory>

#include "engine/comm/collective_call.h"
#include "engine/comm/nccl/nccl_watch.h"
#include "engine/comm/work.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm::nccl {

class NcclWork final : public WorkState {
 public:
  NcclWork(const CallHeader& call, std::shared_ptr<const Watch> watch)
      : call_(call), watch_(std::move(watch)) {}

  // It is enqueued and done when the event passes, or could not be (error).
  void finish(std::exception_ptr error, StreamPoint on_device);

  bool is_done() const override;
  // Without a time: returns when the call is enqueued, and the compute stream waits for it. With
  // one: the calling thread waits for the device.
  void wait(std::optional<double> timeout_seconds) const override;
  void wait_until_issued() const { is_issued_.wait_while_equal(0); }

 private:
  CallHeader call_;
  std::shared_ptr<const Watch> watch_;
  runtime::WaitWord is_issued_{0};
  std::exception_ptr error_;
  StreamPoint on_device_;
};

}  // namespace lockstep::comm::nccl
