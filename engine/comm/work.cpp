#include "engine/comm/work.h"

#include "engine/comm/collective_call.h"
#include "engine/core/thread_context.h"
#include "engine/runtime/wait.h"
#include "engine/trace/observer.h"
#include "engine/trace/span.h"

namespace lockstep::comm {

class AsyncCalls::State final : public WorkState {
 public:
  explicit State(const CallHeader& call) : call_(call) {}

  // The operation is done, with its error or with nullptr. on_device: it is enqueued, and done when
  // this event passes.
  void finish(std::exception_ptr error, StreamPoint on_device) {
    error_ = std::move(error);
    on_device_ = std::move(on_device);
    is_done_.store(1);
  }

  bool is_done() const override {
    return is_done_.load() != 0 && (on_device_.event == nullptr || on_device_.event->has_passed());
  }

  void wait() const override {
    wait_until_run();
    if (trace::Observer* observer = trace::observer()) {
      trace::Call waited;
      waited.sequence = call_.sequence;
      waited.memory.data = call_.memory;
      observer->call(waited, trace::Moment::waited);
    }
    if (error_ != nullptr) std::rethrow_exception(error_);
    if (on_device_.event != nullptr) on_device_.waiter->wait(on_device_.event);
  }

  // Recorded as exposed communication.
  void wait_until_run() const {
    if (is_done_.load() != 0) return;
    trace::ScopedSpan span(trace::Lane::host, trace::Category::communication, "wait for collective",
                           call_.num_elements * size_of(call_.dtype));
    span.set_sequence(static_cast<std::int64_t>(call_.sequence));
    is_done_.wait_while_equal(0);
  }

 private:
  CallHeader call_;
  runtime::WaitWord is_done_{0};
  std::exception_ptr error_;
  StreamPoint on_device_;
};

Work AsyncCalls::start(CollectiveCall call, std::function<void(const CollectiveCall&)> run) {
  auto work = std::make_shared<State>(call.header);
  worker_.post([work, run = std::move(run), call = std::move(call), context = thread_context(),
                track = trace::current_track()]() mutable {
    const ThreadContextScope context_scope(context);
    const trace::TrackScope track_scope(track);
    std::exception_ptr error;
    StreamPoint on_device;
    try {
      run(call);
      if (call.stream != nullptr) on_device = {call.stream->record(), &call.input.stream()};
    } catch (...) {
      error = std::current_exception();
    }
    call = {};  // lets go of the tensors before it is done for others
    work->finish(std::move(error), std::move(on_device));
  });
  last_ = work;
  return Work(std::move(work));
}

void AsyncCalls::finish() {
  const std::shared_ptr<State> last = std::exchange(last_, nullptr);
  if (last != nullptr) last->wait_until_run();
}

}  // namespace lockstep::comm
