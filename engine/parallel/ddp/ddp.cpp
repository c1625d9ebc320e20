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
  const bool is_training = is_training_pass();
  if (is_training) reducer_->begin_forward();
  if (is_training && reducer_->is_synchronizing() &&
      options_.buffers == DdpOptions::Buffers::broadcast) {
    for (const Tensor& buffer : module()->buffers()) communicator_->broadcast(buffer, 0).wait();
  }
  return (*module())(input);
}

bool Ddp::is_training_pass() const {
  return is_training() && grad_enabled();
}

}  // namespace lockstep::parallel
