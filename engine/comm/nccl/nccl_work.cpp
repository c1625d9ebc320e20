#include "engine/comm/nccl/nccl_work.h"

#include "engine/comm/comm_errors.h"

namespace lockstep::comm::nccl {

void NcclWork::finish(std::exception_ptr error, StreamPoint on_device) {
  error_ = std::move(error);
  on_device_ = std::move(on_device);
  is_issued_.store(1);
}

bool NcclWork::is_done() const {
  if (watch_->has_failed()) return true;
  return is_issued_.load() != 0 && (on_device_.event == nullptr || on_device_.event->has_passed());
}

void NcclWork::wait(std::optional<double> timeout_seconds) const {
  const runtime::Deadline deadline = runtime::deadline_after(timeout_seconds);
  bool is_in_time = is_issued_.load() != 0 || is_issued_.wait_while_equal(0, deadline);
  if (is_in_time && error_ != nullptr) std::rethrow_exception(error_);
  watch_->throw_if_failed();
  if (is_in_time && deadline && on_device_.event != nullptr) {
    is_in_time = on_device_.event->wait(deadline);
  }
  watch_->throw_if_failed();
  if (!is_in_time) throw not_done_yet(call_, *timeout_seconds);
  if (on_device_.event != nullptr) on_device_.waiter->wait(on_device_.event);
}

}  // namespace lockstep::comm::nccl
