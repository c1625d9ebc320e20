#include "engine/parallel/ddp/ddp.h"

#include "engine/autograd/grad_mode.h"
#include "engine/core/error.h"
#include "engine/parallel/ddp/agree_on_model.h"

namespace lockstep::parallel {

Ddp::Ddp(std::shared_ptr<nn::Module> module, comm::Communicator& communicator,
         const DdpOptions& options)
    : communicator_(&communicator), options_(options) {
  require(module != nullptr, ErrorCode::Usage, "ddp", "there is no module to wrap");
  agree_on_model(*module, communicator);
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
  broadcast_from_rank_0(module()->buffers(), *communicator_);
}

}  // namespace lockstep::parallel
