#include "engine/parallel/data_parallel/parallel_apply.h"

#include "engine/audit/losses.h"
#include "engine/audit/switch.h"
#include "engine/core/error.h"
#include "engine/parallel/data_parallel/for_each_device.h"
#include "engine/parallel/data_parallel/lost_members.h"
#include "engine/runtime/device_span.h"
#include "engine/trace/span.h"

namespace lockstep::parallel {
namespace {

std::size_t num_rows(const Variable& input) {
  return input.shape().num_dims() == 0 ? 1 : input.shape()[0];
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
    if (!audit::is_on()) [[likely]] {
      outputs[i] = (*replicas[i])(inputs[i]);
      return;
    }
    const audit::RowsNotedScope noted;
    const LostMembers members(*replicas[i], devices[i]);
    outputs[i] = (*replicas[i])(inputs[i]);
    members.note();
  });
  return outputs;
}

}  // namespace lockstep::parallel
