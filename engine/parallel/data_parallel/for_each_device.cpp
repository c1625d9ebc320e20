#include <exception>

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

}  // namespace

void for_each_device(const std::vector<Device>& devices,
                     const std::function<void(std::size_t)>& task) {
  std::vector<std::exception_ptr> errors(devices.size());
  runtime::WaitWord num_running(0);
  const auto run = [&](std::size_t i) {
    trace::TrackScope track(devices[i].index);
    try {
      task(i);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };
  const ThreadContext context = thread_context();
  for (std::size_t i = 1; i < devices.size(); ++i) {
    runtime::Worker& worker = runtime::logical_device(devices[i]).worker();
    if (worker.is_current_thread()) continue;  // it would wait for itself; its task runs below
    num_running.add(1);
    worker.post([&, i] {
      ThreadContextScope scope(context);
      run(i);
      num_running.add(static_cast<std::uint32_t>(-1));
    });
  }
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (i == 0 || runtime::logical_device(devices[i]).worker().is_current_thread()) run(i);
  }
  {
    trace::ScopedSpan span(trace::Lane::host, trace::Category::wait, "wait for replicas");
    for (std::uint32_t left = num_running.load(); left != 0; left = num_running.load()) {
      num_running.wait_while_equal(left);
    }
  }
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (errors[i]) rethrow_with_place(errors[i], i, devices[i]);
  }
}

}  // namespace lockstep::parallel
