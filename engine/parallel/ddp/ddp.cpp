#include "engine/parallel/ddp/ddp.h"

#include <algorithm>
#include <vector>

#include "engine/autograd/grad_mode.h"
#include "engine/core/error.h"
#include "engine/parallel/ddp/verify_models.h"
#include "engine/trace/span.h"

namespace lockstep::parallel {
namespace {

// From rank 0, in one call. A module that stands in the model twice brings its buffers twice.
void broadcast_once(comm::Communicator& communicator, const std::vector<Tensor>& tensors) {
  std::vector<Tensor> distinct;
  for (const Tensor& tensor : tensors) {
    const auto is_same = [&](const Tensor& other) { return other.shares_memory_with(tensor); };
    if (std::ranges::none_of(distinct, is_same)) distinct.push_back(tensor);
  }
  communicator.broadcast(distinct, 0).wait();
}

}  // namespace

Ddp::Ddp(std::shared_ptr<nn::Module> module, comm::Communicator& communicator,
         const DdpOptions& options)
    : communicator_(&communicator), options_(options) {
  require(module != nullptr, ErrorCode::Usage, "ddp", "there is no module to wrap");
  verify_models_match(*module, communicator);
  std::vector<Tensor> state = module->buffers();
  for (const Variable& parameter : module->parameters()) state.push_back(parameter.value());
  broadcast_once(communicator, state);
  reducer_ =
      std::make_shared<GradReducer>(module->named_parameters(), communicator, options.reducer);
  register_child("module", std::move(module));
}

Variable Ddp::forward(const Variable& input) {
  if (grad_enabled()) {
    reducer_->begin_forward();
    if (is_training() && reducer_->is_synchronizing()) broadcast_buffers();
  }
  return (*module())(input);
}

void Ddp::broadcast_buffers() {
  if (options_.buffers != DdpOptions::Buffers::broadcast) return;
  broadcast_once(*communicator_, module()->buffers());
}

}  // namespace lockstep::parallel
