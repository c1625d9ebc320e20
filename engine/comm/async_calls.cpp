#include "engine/comm/async_calls.h"

#include "engine/core/thread_context.h"
#include "engine/trace/span.h"

namespace lockstep::comm {

Work AsyncCalls::start(CollectiveCall call, std::weak_ptr<const Transport> transport,
                       std::function<void(const CollectiveCall&)> run) {
  auto work = std::make_shared<AsyncWork>(call.header, std::move(transport));
  last_ = work;
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
    call = {};  // lets go of the tensors before anybody hears that it is done
    work->finish(std::move(error), std::move(on_device));
  });
  return Work(std::move(work));
}

bool AsyncCalls::finish() {
  const std::shared_ptr<AsyncWork> last = std::exchange(last_, nullptr);
  if (last != nullptr) last->wait_until_issued();
  return last != nullptr;
}

}  // namespace lockstep::comm
