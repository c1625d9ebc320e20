#include "engine/comm/async_work.h"

#include "engine/audit/calls.h"
#include "engine/audit/switch.h"
#include "engine/comm/absent_rank.h"
#include "engine/trace/span.h"

namespace lockstep::comm {

void AsyncWork::finish(std::exception_ptr error, StreamPoint on_device) {
  error_ = std::move(error);
  on_device_ = std::move(on_device);
  is_done_.store(1);
}

bool AsyncWork::wait_until_done(runtime::Deadline deadline) const {
  if (is_done_.load() != 0) return true;
  trace::ScopedSpan span(trace::Lane::host, trace::Category::communication, "wait for collective",
                         call_.num_elements * size_of(call_.dtype));
  span.set_sequence(static_cast<std::int64_t>(call_.sequence));
  return is_done_.wait_while_equal(0, deadline);
}

void AsyncWork::wait(std::optional<double> timeout_seconds) const {
  const runtime::Deadline deadline = runtime::deadline_after(timeout_seconds);
  if (!wait_until_done(deadline)) {
    const std::shared_ptr<const Transport> transport = transport_.lock();
    if (transport == nullptr) throw not_done_yet(call_, *timeout_seconds);
    const std::string missing = transport->describe_missing(call_.sequence);
    fail(ErrorCode::Timeout, name_of(call_.operation), "{}: {}", not_done(call_, *timeout_seconds),
         missing.empty() ? "all ranks have called it and are at work" : missing);
  }
  if (audit::is_on()) audit::note_waited(call_.memory, call_.sequence);
  if (error_ != nullptr) std::rethrow_exception(error_);
  if (on_device_.event != nullptr) on_device_.waiter->wait(on_device_.event);
}

}  // namespace lockstep::comm
