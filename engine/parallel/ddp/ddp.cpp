#include "engine/parallel/ddp/ddp.h"

#include "engine/audit/models.h"
#include "engine/audit/switch.h"
#include "engine/autograd/grad_mode.h"
#include "engine/core/error.h"
#include "engine/parallel/ddp/agree_on_model.h"

namespace lockstep::parallel {

namespace {

void find_wrappers(const nn::Module& module, std::vector<std::string>& found) {
  const std::string name = module.type_name();
  if (name == "DistributedDataParallel" || name == "DataParallel") found.push_back(name);
  for (const auto& [unused, child] : module.children()) find_wrappers(*child, found);
}

void note(const Ddp& ddp, const nn::Module& module) {
  audit::Wrapped wrapped{&ddp, {}, {}};
  for (const Variable& parameter : module.parameters()) {
    wrapped.leaves.push_back(parameter.identity());
  }
  find_wrappers(module, wrapped.inside);
  audit::note_wrapped(wrapped);
}

}  // namespace

Ddp::Ddp(std::shared_ptr<nn::Module> module, comm::Communicator& communicator,
         const DdpOptions& options)
    : communicator_(&communicator), options_(options) {
  require(module != nullptr, ErrorCode::Usage, "ddp", "there is no module to wrap");
  agree_on_model(*module, communicator);
  reducer_ =
      std::make_shared<GradReducer>(module->named_parameters(), communicator, options.reducer);
  if (audit::is_on()) note(*this, *module);
  register_child("module", std::move(module));
}

Ddp::~Ddp() {
  if (audit::is_on()) audit::note_unwrapped(this);
}

Variable Ddp::forward(const Variable& input) {
  begin_forward();
  return (*module())(input);
}

Variable Ddp::forward_cross_entropy(const Variable& input, const Tensor& labels,
                                    Reduction reduction, Tensor grad) {
  begin_forward();
  return module()->cross_entropy_of(input, labels, reduction, std::move(grad));
}

void Ddp::begin_forward() {
  if (!grad_enabled()) return;
  reducer_->begin_forward();
  if (is_training() && reducer_->is_synchronizing()) broadcast_buffers();
}

void Ddp::broadcast_buffers() {
  if (options_.buffers != DdpOptions::Buffers::broadcast) return;
  broadcast_from_rank_0(module()->buffers(), *communicator_);
}

}  // namespace lockstep::parallel
