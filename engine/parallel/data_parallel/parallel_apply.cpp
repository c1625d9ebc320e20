#include <atomic>
#include <exception>
#include <memory>

#include "engine/core/error.h"
#include "engine/core/thread_context.h"
#include "engine/parallel/data_parallel/steps.h"
#include "engine/runtime/device_span.h"
#include "engine/runtime/logical_device.h"
#include "engine/trace/observer.h"
#include "engine/trace/span.h"

namespace lockstep::parallel {

namespace {

[[noreturn]] void rethrow_with_place(std::exception_ptr error, std::size_t index, Device device) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& inner) {
    const bool found_another = inner.code() == ErrorCode::Device && index > 0;
    fail(inner.code(), "parallel_apply", "replica {} on device {}: {}{}", index, to_string(device),
         inner.what(),
         found_another ? " (replicas have copies of the layers that register_child() names; a "
                         "layer or Variable that forward() reaches otherwise is the original)"
                       : "");
  } catch (const std::exception& inner) {
    fail(ErrorCode::State, "parallel_apply", "replica {} on device {}: {}", index,
         to_string(device), inner.what());
  }
}

// One call. It is shared with the workers, which may come to a task after the caller has done it.
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
  // Runs task i unless another thread does or did. `task` no longer exists once all tasks are done.
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
    runtime::logical_device(devices[i]).worker().start();  // before any task runs
  }
  for (std::size_t i = 1; i < devices.size() && uses_workers; ++i) {
    runtime::logical_device(devices[i]).worker().post([call, run, i, context = thread_context()] {
      const ThreadContextScope scope(context);
      run(i);
    });
  }
  // A worker may be busy, even waiting for this very thread, so the caller does all tasks that have
  // not begun when its own is done.
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

namespace {

std::size_t num_rows(const Variable& input) {
  return input.shape().num_dims() == 0 ? 1 : input.shape()[0];
}

// Lists the module and all modules in it.
void list_objects(const nn::Module& module, std::vector<trace::ReplicaModule>& objects) {
  const auto* begin = static_cast<const std::byte*>(dynamic_cast<const void*>(&module));
  objects.push_back({module.type_name(), {begin, module.object_bytes()}});
  for (const auto& [name, child] : module.children()) list_objects(*child, objects);
}

// Calls a replica; an observer looks at it before and after.
Variable apply_observed(trace::Observer& observer, nn::Module& replica, const Variable& input) {
  std::vector<trace::ReplicaModule> objects;
  list_objects(replica, objects);
  observer.replica(input.device(), objects, trace::Moment::begins);
  Variable output = replica(input);
  observer.replica(input.device(), objects, trace::Moment::ends);
  return output;
}

}  // namespace

std::vector<Variable> parallel_apply(const std::vector<std::shared_ptr<nn::Module>>& replicas,
                                     const std::vector<Variable>& inputs) {
  require(replicas.size() == inputs.size(), ErrorCode::Usage, "parallel_apply",
          "{} replicas for {} inputs; give one input per replica", replicas.size(), inputs.size());
  for (const auto& replica : replicas) {
    require(replica != nullptr, ErrorCode::Usage, "parallel_apply", "a replica is a null pointer");
  }
  std::vector<Device> devices;
  std::vector<std::uint64_t> first_rows;
  std::uint64_t next_row = thread_context().first_row;
  for (const Variable& input : inputs) {
    devices.push_back(input.device());
    first_rows.push_back(next_row);
    next_row += num_rows(input);
  }
  std::vector<Variable> outputs(inputs.size());
  for_each_device(devices, [&](std::size_t i) {
    runtime::WorkSpan span(inputs[i].value().stream(), trace::Lane::compute, trace::Category::op,
                           "replica forward");
    ThreadContext context = thread_context();
    context.first_row = first_rows[i];
    ThreadContextScope scope(context);
    const nn::ForwardScope inside_the_module;
    trace::Observer* const observer = trace::observer();
    outputs[i] = observer == nullptr ? (*replicas[i])(inputs[i])
                                     : apply_observed(*observer, *replicas[i], inputs[i]);
  });
  return outputs;
}

}  // namespace lockstep::parallel
