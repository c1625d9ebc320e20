#include "engine/parallel/ddp/ddp.h"

#include "engine/autograd/grad_mode.h"
#include "engine/core/error.h"
#include "engine/parallel/ddp/verify_models.h"
#include "engine/trace/span.h"

namespace lockstep::parallel {

Ddp::Ddp(std::shared_ptr<nn::Module> module, comm::Communicator& communicator,
         const DdpOptions& options)
    : communicator_(&communicator), options_(options) {
  require(module != nullptr, ErrorCode::Usage, "ddp", "there is no module to wrap");
  verify_models_match(*module, communicator);
  for (const Variable& parameter : module->parameters()) {
    communicator.broadcast(parameter.value(), 0).wait();
  }
  for (const Tensor& buffer : module->buffers()) communicator.broadcast(buffer, 0).wait();
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
  for (const Tensor& buffer : module()->buffers()) communicator_->broadcast(buffer, 0).wait();
}

}  // namespace lockstep::parallel
