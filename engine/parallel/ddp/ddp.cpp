#include "engine/parallel/ddp/ddp.h"

#include <string>
#include <vector>

#include "engine/autograd/variable.h"
#include "engine/comm/communicator.h"
#include "engine/core/error.h"
#include "engine/core/thread_context.h"
#include "engine/trace/observer.h"

namespace lockstep::parallel {

void broadcast_values(const nn::Module& module, comm::Communicator& communicator, int source) {
  std::vector<Tensor> state = module.buffers();
  for (const Variable& parameter : module.parameters()) state.push_back(parameter.value());
  for (const Tensor& tensor : state) communicator.broadcast(tensor, source);
}

namespace {

void find_wrappers(const nn::Module& module, std::vector<std::string>& found) {
  const std::string name = module.type_name();
  if (name == "DistributedDataParallel" || name == "DataParallel") found.push_back(name);
  for (const auto& [unused, child] : module.children()) find_wrappers(*child, found);
}

void notify_wrapped(trace::Observer& observer, const Ddp& ddp, const nn::Module& module) {
  std::vector<const void*> leaves;
  for (const Variable& parameter : module.parameters()) leaves.push_back(parameter.identity());
  std::vector<std::string> inside;
  find_wrappers(module, inside);
  observer.fact("wrapped",
                {{"wrapper", trace::address_of(&ddp)}, {"inside", inside}, {"leaves", leaves}});
}

}  // namespace

ThreadContext context_of_rows(const Tensor& rows, int rank) {
  ThreadContext context = thread_context();
  if (context.first_row == 0 && rows.num_dims() > 0) {
    context.first_row = static_cast<std::uint64_t>(rank) * rows.size(0);
  }
  return context;
}

GradReducerOptions DdpOptions::reducer_options() const {
  GradReducerOptions options = reducer;
  if (bucket_mib) {
    require(*bucket_mib > 0 && *bucket_mib < 1e6, ErrorCode::Usage, "ddp",
            "bucket_mib must be positive and below 1e6, found {}", *bucket_mib);
    options.bucket_byte_limits = {static_cast<std::size_t>(*bucket_mib * (1 << 20))};
  }
  options.unused = unused;
  return options;
}

Ddp::Ddp(std::shared_ptr<nn::Module> module, comm::Communicator& communicator,
         const DdpOptions& options)
    : communicator_(&communicator), rank_(communicator.rank()), options_(options) {
  require(module != nullptr, ErrorCode::Usage, "ddp", "there is no module to wrap");
  broadcast_model(*module, communicator);
  reducer_ = std::make_shared<GradReducer>(module->named_parameters(), communicator,
                                           options.reducer_options());
  for (const Variable& parameter : module->parameters()) {
    wrapped_.emplace_back(parameter, parameter.requires_grad());
  }
  if (trace::Observer* observer = trace::observer()) notify_wrapped(*observer, *this, *module);
  if (options.buffers == DdpOptions::Buffers::broadcast) buffers_.pack(*module);
  register_child("module", std::move(module));
}

Ddp::~Ddp() {
  trace::fact("unwrapped", {{"wrapper", trace::address_of(this)}});
}

void Ddp::require_same_parameters() const {
  const std::vector<Variable> now = module()->parameters();
  require(now.size() == wrapped_.size(), ErrorCode::State, "ddp",
          "the module had {} parameters when it was wrapped and has {} now; wrap it again",
          wrapped_.size(), now.size());
  for (std::size_t i = 0; i < now.size(); ++i) {
    const auto& [before, had_grad] = wrapped_[i];
    if (now[i].is_same(before) && now[i].requires_grad() == had_grad) continue;
    const char* what = !now[i].is_same(before) ? "replaced" : had_grad ? "frozen" : "unfrozen";
    fail(ErrorCode::State, "ddp",
         "parameter {} was {} after the module was wrapped, and the buckets know it as it was; "
         "wrap the module again",
         module()->named_parameters()[i].first, what);
  }
}

void Ddp::broadcast_buffers(int source) {
  if (options_.buffers == DdpOptions::Buffers::keep || !is_training()) return;
  buffers_.broadcast(*module(), *communicator_, source);
}

Variable Ddp::forward(const Variable& input) {
  if (grad_enabled()) {
    require_same_parameters();
    reducer_->begin_forward();
    const int source = meet_ ? meet_() : 0;
    if (reducer_->is_synchronizing()) broadcast_buffers(source);
  }
  const ThreadContextScope scope(context_of_rows(input.value(), rank_));
  Variable output = (*module())(input);
  if (grad_enabled()) reducer_->end_forward(output);
  return output;
}

}  // namespace lockstep::parallel
