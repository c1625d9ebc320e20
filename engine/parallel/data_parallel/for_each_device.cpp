#include <atomic>
#include <exception>
#include <memory>

#include "engine/core/error.h"
#include "engine/core/thread_context.h"
#include "engine/parallel/data_parallel/for_each_device.h"
#include "engine/runtime/logical_device.h"
#include "engine/trace/span.h"

namespace lockstep::parallel {
namespace {

[[noreturn]] void rethrow_with_place(std::exception_ptr error, std::size_t index, Device device) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& inner) {
    fail(inner.code(), "parallel_apply", "replica {} on device {}: {}", index, to_string(device),
         inner.what());
  } catch (const std::exception& inner) {
    fail(ErrorCode::State, "parallel_apply", "replica {} on device {}: {}", index,
         to_string(device), inner.what());
  }
}

// One call: shared with the workers, which may come to a task after the caller has done it.
struct Call {
  explicit Call(std::size_t num_tasks) : is_taken(num_tasks), errors(num_tasks) {}

  std::vector<std::atomic<bool>> is_taken;
  std::vector<std::exception_ptr> errors;
  runtime::WaitWord num_done{0};
};

}  // namespace

void for_each_device(const std::vector<Device>& devices,
                     const std::function<void(std::size_t)>& task) {
  const auto call = std::make_shared<Call>(devices.size());
  // Runs task i unless another thread does or did. `task` is gone once all tasks are taken and
  // done.
  const auto run = [call = call.get(), &devices, &task](std::size_t i) {
    if (call->is_taken[i].exchange(true)) return;
    trace::TrackScope track(devices[i].index);
    try {
      task(i);
    } catch (...) {
      call->errors[i] = std::current_exception();
    }
    call->num_done.add(1);
  };
  const bool uses_workers = thread_context().issue == Issue::by_workers;
  for (std::size_t i = 1; i < devices.size() && uses_workers; ++i) {
    runtime::logical_device(devices[i]).worker().post([call, run, i, context = thread_context()] {
      const ThreadContextScope scope(context);
      run(i);
    });
  }
  // A worker may be busy, even waiting for this very thread: whatever has not begun when the
  // caller's own task is done, the caller does.
  for (std::size_t i = 0; i < devices.size(); ++i) run(i);
  {
    trace::ScopedSpan span(trace::Lane::host, trace::Category::wait, "wait for replicas");
    const auto all = static_cast<std::uint32_t>(devices.size());
    for (std::uint32_t done = call->num_done.load(); done != all; done = call->num_done.load()) {
      call->num_done.wait_while_equal(done);
    }
  }
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (call->errors[i]) rethrow_with_place(call->errors[i], i, devices[i]);
  }
}

}  // namespace lockstep::parallel
